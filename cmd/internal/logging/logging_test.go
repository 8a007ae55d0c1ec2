package logging

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Records below the level of --v are left out, unless --vmodule says otherwise for the package that
// logs: by its name, or by the end of its path.
func TestLevels(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ v, vmodule, want string }{
		{"0", "", "info warn"},
		{"1", "", "debug info warn"},
		{"-1", "", "warn"},
		{"0", "logging=2", "debug info warn"},
		{"0", "internal/logging=1", "debug info warn"},
		{"0", "cmd/internal/logging=1", "debug info warn"},
		{"0", "log*=1", "debug info warn"},
		{"0", "other/logging=1,logg=1", "info warn"},
		{"1", "logging=-1", "warn"},
		{"-1", "upstream=2, logging=0", "info warn"},
		{"0", "logging=-1,logging=1", "warn"},
	} {
		levels := NewLevels()
		if err := levels.SetVerbosity(tc.v); err != nil {
			t.Fatal(err)
		}
		if err := levels.SetModules(tc.vmodule); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log, err := New(&out, Text, levels)
		if err != nil {
			t.Fatal(err)
		}
		log = log.With("of", "all").WithGroup("g")
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(line, "msg=")
			got = append(got, strings.Fields(line)[0])
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("--v=%s --vmodule=%s: got %q, want %q", tc.v, tc.vmodule, got, tc.want)
		}
	}
}

// Levels that cannot be read are refused and change nothing.
func TestBadLevels(t *testing.T) {
	t.Parallel()
	levels := NewLevels()
	if err := levels.SetVerbosity("many"); err == nil {
		t.Error("--v=many is taken")
	}
	for _, bad := range []string{"upstream", "=1", "upstream=high", "[=1", "a=1,b"} {
		if err := levels.SetModules(bad); err == nil || !strings.Contains(err.Error(), "--vmodule") {
			t.Errorf("--vmodule=%s: %v", bad, err)
		}
	}
	if got := *levels.current.Load(); got.least != slog.LevelInfo || got.modules != nil {
		t.Errorf("they became %+v", got)
	}
}

// A line of the format json is an object of JSON; an unknown format is refused.
func TestFormats(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := New(&out, JSON, NewLevels())
	if err != nil {
		t.Fatal(err)
	}
	log.Warn("a message", "key", "a value")
	var line struct{ Level, Msg, Key string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Level != "WARN" || line.Msg != "a message" || line.Key != "a value" {
		t.Errorf("%s: %+v, %v", &out, line, err)
	}
	if _, err := New(&out, "xml", NewLevels()); err == nil || err.Error() != "--log-format=xml: must be text or json" {
		t.Error(err)
	}
}

// A record without a program counter, as those of etcd, has the level of --v.
func TestRecordWithoutCaller(t *testing.T) {
	t.Parallel()
	levels := NewLevels()
	if err := levels.SetModules("logging=2,*=2"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log, err := New(&out, Text, levels)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Handler().Handle(t.Context(), slog.NewRecord(time.Time{}, slog.LevelDebug, "m", 0)); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 {
		t.Errorf("it is logged: %s", &out)
	}
}
