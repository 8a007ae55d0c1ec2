package controllers

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Of the selected controllers those start that have all they need.
func TestSwitchedOffKinds(t *testing.T) {
	t.Parallel()
	jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	for _, c := range All() {
		switch off := c.missing(func(r schema.GroupVersionResource) bool { return r != jobs }); {
		case c.Name == "ttl-after-finished-controller" && off != "batch/v1/jobs", c.Name != "ttl-after-finished-controller" && off != "":
			t.Errorf("without Jobs, %s misses %q", c.Name, off)
		case c.Run != nil && c.missing(func(schema.GroupVersionResource) bool { return false }) == "":
			t.Errorf("%s needs nothing", c.Name)
		}
	}
	s := newServer(t)
	mapper, err := NewMapper(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	logged := make(lines, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Run(ctx, Config{
			Gateway: s.cfg, Mapper: mapper, Selection: Selection{"ttl-after-finished-controller"}, Log: slog.New(slog.NewTextHandler(logged, nil)),
			Serves: func(r schema.GroupVersionResource) bool { return r != jobs },
		})
	}()
	if line := <-logged; !strings.Contains(line, "controller=ttl-after-finished-controller resource=batch/v1/jobs") {
		t.Errorf("logged %q", line)
	}
	cancel()
	<-done
	if requests := s.requests(); slices.ContainsFunc(requests, func(r string) bool { return strings.Contains(r, "/jobs") }) {
		t.Errorf("requests %q", requests)
	}
}

// lines are what a logger writes.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
