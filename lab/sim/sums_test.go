package sim

import "testing"

func TestSums(t *testing.T) {
	for spec, want := range map[string]Sums{
		// Two groups of two conversations: prompts of 64+16, +24 and +24 tokens in blocks
		// of 8. The first turn finds nothing or the 64 of its group, the others all
		// that the last prompt had.
		"conversations:users=2,conversations=4,turns=3,groups=2,system=64,input=16,output=8,block=8": {Requests: 12, Sessions: 4, Prompt: 4 * (80 + 104 + 128), Output: 96,
			Reused: 2*64 + 4*(80+104), Closed: true, Users: 2},
		"uniform:requests=10,input=1024,output=1": {Requests: 10, Sessions: 10, Prompt: 10240, Output: 10},
	} {
		w, err := Generate(spec, 2)
		if err != nil {
			t.Fatal(err)
		}
		got := w.Sums()
		if !got.Closed && !(got.Span > 0) {
			t.Errorf("%s: span %v", spec, got.Span)
		}
		got.Span = 0
		if !want.Closed {
			want.Output = got.Output // exponential
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", spec, got, want)
		}
	}
}
