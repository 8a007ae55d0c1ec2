package crd

import (
	"encoding/json"
	"math"
	"testing"

	kjson "sigs.k8s.io/json"
)

// What is written is what encoding/json writes.
func FuzzAppendJSON(f *testing.F) {
	for _, seed := range []string{
		`null`, `{}`, `[]`, `{"b":[1,-2.5,1e30,true,null],"a":{"":"","é":"<&>\u0000\u2028\ud800","\"\\":"\t"}}`, `"\u007f"`,
		gadget("a"), `{"1":1,"10":1,"2":9223372036854775807,"3":9223372036854775808}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var value any
		if kjson.UnmarshalCaseSensitivePreserveInts(data, &value) != nil {
			return
		}
		want, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := appendJSON([]byte("x"), value)
		if err != nil || string(got) != "x"+string(want) {
			t.Fatalf("%s, want %s (%v)", got, want, err)
		}
	})
}

func TestAppendJSONOfOddValues(t *testing.T) {
	for _, value := range []any{map[string]any(nil), []any(nil), json.RawMessage(`{"a": 1}`), 5, float32(0.1), "\xff", []string{"a"}} {
		want, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := appendJSON(nil, value); err != nil || string(got) != string(want) {
			t.Errorf("%v: %s (%v), want %s", value, got, err, want)
		}
	}
	for _, value := range []any{math.NaN(), map[string]any{"a": []any{math.Inf(1)}}, map[string]any{"a": make(chan int)}} {
		if got, err := appendJSON(nil, value); err == nil {
			t.Errorf("%v became %s", value, got)
		}
	}
}
