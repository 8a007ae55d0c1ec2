package logs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// at is a line of a log at a second of a minute.
func at(second int, message string) string {
	return fmt.Sprintf("time=2026-01-02T03:04:%02d.000Z level=INFO msg=%q\n", second, message)
}

// folder has the logs of two processes: one rotated twice, one in JSON, one with a panic.
func folder(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "[logs]*")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "core-2026-01-02T03-04-02.000.log"), at(1, "a"))
	write(t, filepath.Join(dir, "core-2026-01-02T03-04-05.000.log"), at(3, "c"))
	write(t, filepath.Join(dir, "core.log"), at(5, "e")+"panic: it ends\ngoroutine 1\n"+at(8, "h"))
	write(t, filepath.Join(dir, "crd.log"), `{"time":"2026-01-02T03:04:02Z","msg":"b"}`+"\n"+at(6, "f")+"time=2026-01-02T03:04:09Z half a line")
	write(t, filepath.Join(dir, "other.log"), "not of a process\n")
	return dir
}

// messages shortens lines to what distinguishes them.
func messages(text string) string {
	out := strings.NewReplacer(`time=2026-01-02T03:04:`, "", ".000Z level=INFO msg=", "", `"time":"2026-01-02T03:04:`, "", `"`, "").Replace(text)
	return strings.ReplaceAll(strings.TrimSpace(out), "\n", "|")
}

func TestLogs(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	from := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	for name, tc := range map[string]struct {
		processes []string
		sel       selection
		want      string
	}{
		"all, by time":      {nil, selection{tail: -1}, "core    01a|crd     {02Z,msg:b}|core    03c|core    05e|core    panic: it ends|core    goroutine 1|crd     06f|core    08h|crd     09Z half a line"},
		"one process":       {[]string{"crd"}, selection{tail: -1}, "{02Z,msg:b}|06f|09Z half a line"},
		"one process twice": {[]string{"core", "core"}, selection{tail: 1}, "core    08h"},
		"the last two":      {[]string{"core"}, selection{tail: 2}, "goroutine 1|08h"},
		"more than all":     {[]string{"crd"}, selection{tail: 50}, "{02Z,msg:b}|06f|09Z half a line"},
		"none":              {[]string{"core"}, selection{}, ""},
		"since":             {[]string{"core"}, selection{tail: -1, since: from(5)}, "05e|panic: it ends|goroutine 1|08h"},
		"since, and last":   {[]string{"core"}, selection{tail: 2, since: from(8)}, "08h"},
	} {
		var out strings.Builder
		if err := run(t.Context(), &out, dir, tc.processes, tc.sel, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := messages(out.String()); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
	lines, err := Last(dir, 1)
	if err != nil || len(lines) != 1 || !strings.HasSuffix(lines[0], `msg="h"`) || !strings.HasPrefix(lines[0], "core: ") {
		t.Errorf("the last line is %q, %v", lines, err)
	}
}

// A line of any length takes bounded memory, and the next one is whole.
func TestLongLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "up.log"), strings.Repeat("x", 3*maxLine)+"\nshort\n")
	var out strings.Builder
	if err := run(t.Context(), &out, dir, []string{"up"}, selection{tail: -1}, false); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("x", maxLine) + "…\nshort\n"; out.String() != want {
		t.Errorf("%d bytes, want %d", out.Len(), len(want))
	}
}

// --follow shows new lines, also after the file was rotated or truncated, and what was written to
// the old file just before.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "core.log")
	write(t, file, at(1, "old")+at(2, "last"))
	read, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, w, dir, []string{"core"}, selection{tail: 1}, true)
		w.Close()
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		text := ""
		buf := make([]byte, 1024)
		for {
			n, err := read.Read(buf)
			text += string(buf[:n])
			for head, tail, ok := strings.Cut(text, "\n"); ok; head, tail, ok = strings.Cut(text, "\n") {
				lines <- messages(head)
				text = tail
			}
			if err != nil {
				return
			}
		}
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-lines:
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(await.Patience()):
			t.Fatalf("no line %q", want)
		}
	}
	expect("02last")
	write(t, file, "time=2026-01-02T03:04:03.000Z level=")
	write(t, file, "INFO msg=\"in two parts\"\n")
	expect("03in two parts")
	write(t, file, at(4, "just before"))
	if err := os.Rename(file, filepath.Join(dir, "core-2026-01-02T03-04-04.000.log")); err != nil {
		t.Fatal(err)
	}
	write(t, file, at(5, "after"))
	expect("04just before")
	expect("05after")
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	write(t, file, at(6, "s")) // shorter than before
	expect("06s")
	cancel()
	if err := <-ended; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

// What cannot be done is one line.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	empty := t.TempDir()
	for line, want := range map[string]string{
		"kubelet":                            `"kubelet": no such process; one of up, etcd, core, crd, gateway`,
		"--since=-1s --data-dir=" + empty:    "--since must not be negative",
		"--tail=-2 --data-dir=" + empty:      "--tail must not be negative",
		"--tail=1000000 --data-dir=" + empty: "--tail must not be above 100000",
		"--data-dir=" + empty + "/none":      "give the one of portico up",
		"--data-dir=" + empty:                "has portico up run with this --data-dir?",
	} {
		cmd := New()
		cmd.SetArgs(strings.Fields(line))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", line, err)
		}
	}
	if err := run(t.Context(), io.Discard, dir, []string{"gateway"}, selection{}, false); err == nil || !strings.Contains(err.Error(), "there are logs of core,crd") {
		t.Error(err)
	}
}
