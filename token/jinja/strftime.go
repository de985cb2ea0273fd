package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime is Python's datetime.strftime in the C locale, with glibc's - and other flags where
// templates use them. Unknown letters stay as they are.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		pad := byte(0)
		if (format[i] == '-' || format[i] == '_' || format[i] == '0') && i+1 < len(format) {
			pad = format[i]
			i++
		}
		b.WriteString(timeField(t, format[i], pad))
	}
	return b.String()
}

func timeField(t time.Time, c, pad byte) string {
	num := func(n, width int, fill byte) string {
		if pad == '_' {
			fill = ' '
		} else if pad == '0' {
			fill = '0'
		}
		s := fmt.Sprint(n)
		if pad != '-' && len(s) < width {
			s = strings.Repeat(string(fill), width-len(s)) + s
		}
		return s
	}
	hour12 := (t.Hour()+11)%12 + 1
	monday := (int(t.Weekday()) + 6) % 7
	switch c {
	case 'a':
		return t.Format("Mon")
	case 'A':
		return t.Format("Monday")
	case 'b', 'h':
		return t.Format("Jan")
	case 'B':
		return t.Format("January")
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 2006")
	case 'C':
		return num(t.Year()/100, 2, '0')
	case 'd':
		return num(t.Day(), 2, '0')
	case 'D', 'x':
		return t.Format("01/02/06")
	case 'e':
		return num(t.Day(), 2, ' ')
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'F':
		return t.Format("2006-01-02")
	case 'G':
		y, _ := t.ISOWeek()
		return num(y, 4, '0')
	case 'g':
		y, _ := t.ISOWeek()
		return num(y%100, 2, '0')
	case 'H':
		return num(t.Hour(), 2, '0')
	case 'I':
		return num(hour12, 2, '0')
	case 'j':
		return num(t.YearDay(), 3, '0')
	case 'k':
		return num(t.Hour(), 2, ' ')
	case 'l':
		return num(hour12, 2, ' ')
	case 'm':
		return num(int(t.Month()), 2, '0')
	case 'M':
		return num(t.Minute(), 2, '0')
	case 'n':
		return "\n"
	case 'p':
		return t.Format("PM")
	case 'P':
		return t.Format("pm")
	case 'r':
		return t.Format("03:04:05 PM")
	case 'R':
		return t.Format("15:04")
	case 's':
		return fmt.Sprint(t.Unix())
	case 'S':
		return num(t.Second(), 2, '0')
	case 't':
		return "\t"
	case 'T', 'X':
		return t.Format("15:04:05")
	case 'u':
		return num(monday+1, 1, '0')
	case 'U':
		return num((t.YearDay()+6-int(t.Weekday()))/7, 2, '0')
	case 'V':
		_, w := t.ISOWeek()
		return num(w, 2, '0')
	case 'w':
		return num(int(t.Weekday()), 1, '0')
	case 'W':
		return num((t.YearDay()+6-monday)/7, 2, '0')
	case 'y':
		return num(t.Year()%100, 2, '0')
	case 'Y':
		return num(t.Year(), 1, '0')
	case 'z', 'Z', ':':
		return "" // datetime.now() has no zone
	case '%':
		return "%"
	}
	return "%" + string(c)
}
