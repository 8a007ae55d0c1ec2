package controllers

import (
	"slices"
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		flag string
		want bool // whether ttl-after-finished-controller runs
		err  string
	}{
		{flag: "", want: true},
		{flag: "*", want: true},
		{flag: "*,-ttl-after-finished-controller", want: false},
		{flag: "-ttl-after-finished-controller,*", want: false},
		{flag: "ttl-after-finished-controller,-ttl-after-finished-controller", want: true},
		{flag: "ttl-after-finished-controller", want: true},
		{flag: "namespace-controller", want: false},
		{flag: "-namespace-controller", want: false},
		{flag: "*,ttl", err: `"ttl" is not in the list of known controllers`},
		{flag: "-*", err: `"-*" is not in the list of known controllers`},
		{flag: "--namespace-controller", err: "is not in the list"},
	} {
		var values []string
		if tc.flag != "" {
			values = strings.Split(tc.flag, ",")
		}
		selected, err := Select(values)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want %s", tc.flag, err, tc.err)
			}
			continue
		}
		if err != nil || selected.Has("ttl-after-finished-controller") != tc.want {
			t.Errorf("%q: selected is %v, %v", tc.flag, !tc.want, err)
		}
	}
	if !slices.IsSorted(Names()) {
		t.Error("the rows are in another order")
	}
}
