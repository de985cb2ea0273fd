package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// specialUpper and specialTitle are the code points whose upper and title case have more than one
// code point (SpecialCasing.txt of the Unicode Character Database, unconditional part). They are
// written as text: a code point, its mapping, a newline.
const specialUpper = "" +
	"\u00df\u0053\u0053\n\u0149\u02bc\u004e\n\u01f0\u004a\u030c\n\u0390\u0399\u0308\u0301\n" +
	"\u03b0\u03a5\u0308\u0301\n\u0587\u0535\u0552\n\u1e96\u0048\u0331\n\u1e97\u0054\u0308\n\u1e98\u0057\u030a\n" +
	"\u1e99\u0059\u030a\n\u1e9a\u0041\u02be\n\u1f50\u03a5\u0313\n\u1f52\u03a5\u0313\u0300\n" +
	"\u1f54\u03a5\u0313\u0301\n\u1f56\u03a5\u0313\u0342\n\u1f80\u1f08\u0399\n\u1f81\u1f09\u0399\n" +
	"\u1f82\u1f0a\u0399\n\u1f83\u1f0b\u0399\n\u1f84\u1f0c\u0399\n\u1f85\u1f0d\u0399\n\u1f86\u1f0e\u0399\n" +
	"\u1f87\u1f0f\u0399\n\u1f88\u1f08\u0399\n\u1f89\u1f09\u0399\n\u1f8a\u1f0a\u0399\n\u1f8b\u1f0b\u0399\n" +
	"\u1f8c\u1f0c\u0399\n\u1f8d\u1f0d\u0399\n\u1f8e\u1f0e\u0399\n\u1f8f\u1f0f\u0399\n\u1f90\u1f28\u0399\n" +
	"\u1f91\u1f29\u0399\n\u1f92\u1f2a\u0399\n\u1f93\u1f2b\u0399\n\u1f94\u1f2c\u0399\n\u1f95\u1f2d\u0399\n" +
	"\u1f96\u1f2e\u0399\n\u1f97\u1f2f\u0399\n\u1f98\u1f28\u0399\n\u1f99\u1f29\u0399\n\u1f9a\u1f2a\u0399\n" +
	"\u1f9b\u1f2b\u0399\n\u1f9c\u1f2c\u0399\n\u1f9d\u1f2d\u0399\n\u1f9e\u1f2e\u0399\n\u1f9f\u1f2f\u0399\n" +
	"\u1fa0\u1f68\u0399\n\u1fa1\u1f69\u0399\n\u1fa2\u1f6a\u0399\n\u1fa3\u1f6b\u0399\n\u1fa4\u1f6c\u0399\n" +
	"\u1fa5\u1f6d\u0399\n\u1fa6\u1f6e\u0399\n\u1fa7\u1f6f\u0399\n\u1fa8\u1f68\u0399\n\u1fa9\u1f69\u0399\n" +
	"\u1faa\u1f6a\u0399\n\u1fab\u1f6b\u0399\n\u1fac\u1f6c\u0399\n\u1fad\u1f6d\u0399\n\u1fae\u1f6e\u0399\n" +
	"\u1faf\u1f6f\u0399\n\u1fb2\u1fba\u0399\n\u1fb3\u0391\u0399\n\u1fb4\u0386\u0399\n\u1fb6\u0391\u0342\n" +
	"\u1fb7\u0391\u0342\u0399\n\u1fbc\u0391\u0399\n\u1fc2\u1fca\u0399\n\u1fc3\u0397\u0399\n\u1fc4\u0389\u0399\n" +
	"\u1fc6\u0397\u0342\n\u1fc7\u0397\u0342\u0399\n\u1fcc\u0397\u0399\n\u1fd2\u0399\u0308\u0300\n" +
	"\u1fd3\u0399\u0308\u0301\n\u1fd6\u0399\u0342\n\u1fd7\u0399\u0308\u0342\n\u1fe2\u03a5\u0308\u0300\n" +
	"\u1fe3\u03a5\u0308\u0301\n\u1fe4\u03a1\u0313\n\u1fe6\u03a5\u0342\n\u1fe7\u03a5\u0308\u0342\n" +
	"\u1ff2\u1ffa\u0399\n\u1ff3\u03a9\u0399\n\u1ff4\u038f\u0399\n\u1ff6\u03a9\u0342\n\u1ff7\u03a9\u0342\u0399\n" +
	"\u1ffc\u03a9\u0399\n\ufb00\u0046\u0046\n\ufb01\u0046\u0049\n\ufb02\u0046\u004c\n\ufb03\u0046\u0046\u0049\n" +
	"\ufb04\u0046\u0046\u004c\n\ufb05\u0053\u0054\n\ufb06\u0053\u0054\n\ufb13\u0544\u0546\n\ufb14\u0544\u0535\n" +
	"\ufb15\u0544\u053b\n\ufb16\u054e\u0546\n\ufb17\u0544\u053d\n"

const specialTitle = "" +
	"\u00df\u0053\u0073\n\u0149\u02bc\u004e\n\u01f0\u004a\u030c\n\u0390\u0399\u0308\u0301\n" +
	"\u03b0\u03a5\u0308\u0301\n\u0587\u0535\u0582\n\u1e96\u0048\u0331\n\u1e97\u0054\u0308\n\u1e98\u0057\u030a\n" +
	"\u1e99\u0059\u030a\n\u1e9a\u0041\u02be\n\u1f50\u03a5\u0313\n\u1f52\u03a5\u0313\u0300\n" +
	"\u1f54\u03a5\u0313\u0301\n\u1f56\u03a5\u0313\u0342\n\u1fb2\u1fba\u0345\n\u1fb4\u0386\u0345\n" +
	"\u1fb6\u0391\u0342\n\u1fb7\u0391\u0342\u0345\n\u1fc2\u1fca\u0345\n\u1fc4\u0389\u0345\n\u1fc6\u0397\u0342\n" +
	"\u1fc7\u0397\u0342\u0345\n\u1fd2\u0399\u0308\u0300\n\u1fd3\u0399\u0308\u0301\n\u1fd6\u0399\u0342\n" +
	"\u1fd7\u0399\u0308\u0342\n\u1fe2\u03a5\u0308\u0300\n\u1fe3\u03a5\u0308\u0301\n\u1fe4\u03a1\u0313\n" +
	"\u1fe6\u03a5\u0342\n\u1fe7\u03a5\u0308\u0342\n\u1ff2\u1ffa\u0345\n\u1ff4\u038f\u0345\n\u1ff6\u03a9\u0342\n" +
	"\u1ff7\u03a9\u0342\u0345\n\ufb00\u0046\u0066\n\ufb01\u0046\u0069\n\ufb02\u0046\u006c\n" +
	"\ufb03\u0046\u0066\u0069\n\ufb04\u0046\u0066\u006c\n\ufb05\u0053\u0074\n\ufb06\u0053\u0074\n" +
	"\ufb13\u0544\u0576\n\ufb14\u0544\u0565\n\ufb15\u0544\u056b\n\ufb16\u054e\u0576\n\ufb17\u0544\u056d\n"

func casingTable(text string) map[rune]string {
	m := map[rune]string{}
	for _, row := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		r, n := utf8.DecodeRuneInString(row)
		m[r] = row[n:]
	}
	return m
}

var upperTable, titleTable = casingTable(specialUpper), casingTable(specialTitle)

// pyUpper is str.upper.
func pyUpper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, r := range s {
		if m, ok := upperTable[r]; ok {
			b.WriteString(m)
		} else {
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

func titleRune(b *strings.Builder, r rune) {
	if m, ok := titleTable[r]; ok {
		b.WriteString(m)
	} else {
		b.WriteRune(unicode.ToTitle(r))
	}
}

// pyLower is str.lower, with the final form of sigma at the end of a word.
func pyLower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		switch r {
		case 'Σ':
			if finalSigma(s, i) {
				b.WriteRune('ς')
			} else {
				b.WriteRune('σ')
			}
		case 'İ':
			b.WriteString("i\u0307")
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// finalSigma: a cased letter before it and none after it, looking past what case ignores.
func finalSigma(s string, at int) bool {
	before := false
	for i := at; i > 0; {
		r, n := utf8.DecodeLastRuneInString(s[:i])
		if i -= n; !caseIgnorable(r) {
			before = isCased(r)
			break
		}
	}
	if !before {
		return false
	}
	for _, r := range s[at+len("Σ"):] {
		if !caseIgnorable(r) {
			return !isCased(r)
		}
	}
	return true
}

func isCased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) || unicode.In(r, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

func caseIgnorable(r rune) bool {
	switch r {
	case '\'', '.', ':', 0xb7, 0x2018, 0x2019, 0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a:
		return true
	}
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

// pyTitle is str.title: a cased letter is title case at the start of a run of cased ones.
func pyTitle(s string) string {
	var b strings.Builder
	prev := false
	for i, r := range s {
		switch {
		case prev && r == 'Σ' && finalSigma(s, i):
			b.WriteRune('ς')
		case prev:
			b.WriteRune(unicode.ToLower(r))
		default:
			titleRune(&b, r)
		}
		prev = isCased(r)
	}
	return b.String()
}

// pyCapitalize is str.capitalize.
func pyCapitalize(s string) string {
	if s == "" {
		return s
	}
	_, n := utf8.DecodeRuneInString(s)
	var b strings.Builder
	first, _ := utf8.DecodeRuneInString(s)
	titleRune(&b, first)
	lower := pyLower(s)
	_, m := utf8.DecodeRuneInString(pyLower(s[:n]))
	if first == 'İ' {
		m = len("i\u0307")
	}
	b.WriteString(lower[m:])
	return b.String()
}
