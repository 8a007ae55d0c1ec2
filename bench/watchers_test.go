package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func frame(number int64) string {
	return fmt.Sprintf(`%s"object":{"spec":{"sequence":%d,"image":"a"}}}`+"\n", modifiedFrame, number)
}

// Each event is counted once and its number is found, for every size of read.
func TestWatcherReadsSplitFrames(t *testing.T) {
	const first, n = 7, 5
	var stream strings.Builder
	for number := range int64(n) {
		stream.WriteString(frame(first + number))
	}
	for size := 1; size <= stream.Len(); size++ {
		looks := &watcher{keep: maxFrame, sent: &updates{first: first}, seen: map[int64]int{}}
		counts := &watcher{keep: headOfFrame}
		for rest := stream.String(); rest != ""; {
			piece := rest[:min(size, len(rest))]
			rest = rest[len(piece):]
			for _, w := range []*watcher{looks, counts} {
				if err := w.take([]byte(piece)); err != nil {
					t.Fatalf("pieces of %d bytes: %v", size, err)
				}
			}
		}
		if err := (&watchers{all: []*watcher{looks, counts}}).verify(first, n); err != nil {
			t.Fatalf("pieces of %d bytes: %v", size, err)
		}
	}
}

// A frame that is not MODIFIED is an error that has its text.
func TestWatcherRejectsOtherFrames(t *testing.T) {
	for _, text := range []string{
		`{"type":"ERROR","object":{"code":410}}`, `{"type":"ADDED","object":{}}`, `not JSON`, ``,
	} {
		w := &watcher{keep: headOfFrame}
		err := w.take([]byte(frame(1) + text + "\n"))
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Lost, repeated and unexpected events are detected.
func TestVerifyDetectsFaults(t *testing.T) {
	for name, numbers := range map[string][]int64{
		"lost": {1, 2}, "repeated instead of another": {1, 2, 2}, "too many": {1, 2, 3, 3}, "unexpected": {1, 2, 9},
	} {
		w := &watcher{keep: maxFrame, sent: &updates{first: 1}, seen: map[int64]int{}}
		for _, number := range numbers {
			if err := w.take([]byte(frame(number))); err != nil {
				t.Fatal(err)
			}
		}
		if err := (&watchers{all: []*watcher{w}}).verify(1, 3); err == nil {
			t.Errorf("%s: not detected", name)
		}
	}
}

// Only numbers that were sent have an age.
func TestUpdatesAge(t *testing.T) {
	u := newUpdates(10)
	u.began = u.began.Add(-time.Second)
	if number := u.begin(3); number != 13 || u.age(13) < 0 || u.age(13) > time.Minute {
		t.Errorf("number %d, age %v", number, u.age(13))
	}
	for _, unknown := range []int64{-1, 9, 12, 10 + maxUpdates} {
		if age := u.age(unknown); age != 0 {
			t.Errorf("age of %d, which was not sent: %v", unknown, age)
		}
	}
}

// A result is judged by its bar: a share of the yardstick, or the most of a figure.
func TestBarVerdict(t *testing.T) {
	for _, tc := range []struct {
		of   result
		want string
	}{
		{result{Bar: 0.5, Yardstick: "chain", Ratio: 0.49}, "missed"}, {result{Bar: 0.5, Yardstick: "chain", Ratio: 0.5}, "met"},
		{result{Figure: 1}, ""}, {result{Yardstick: "chain", Ratio: 1}, ""},
		{result{Bar: 50, Unit: "MB", Figure: 51}, "missed"}, {result{Bar: 50, Unit: "MB", Figure: 50}, "met"},
	} {
		if _, got := tc.of.describeBar(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.of, got, tc.want)
		}
	}
}
