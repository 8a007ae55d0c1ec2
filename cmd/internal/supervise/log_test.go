package supervise

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portico/internal/testing/await"
)

func TestLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.log")
	var also bytes.Buffer
	log, err := OpenLog(LogConfig{File: file, Also: &also, Prefix: "gateway | "})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"one\ntw", "o\n", "\n", "thr"} {
		if n, err := log.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	log.Close()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != "one\ntwo\n\nthr" {
		t.Errorf("file: %q", data)
	}
	if want := "gateway | one\ngateway | two\ngateway | \n"; also.String() != want {
		t.Errorf("also: %q", also.String())
	}
	if log.Last() != "two" {
		t.Errorf("last: %q", log.Last())
	}
}

// The log and as many old files as are asked for are kept, each of the size that is asked for.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, err := OpenLog(LogConfig{File: filepath.Join(dir, "core.log"), MaxMegabytes: 2, MaxBackups: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	half := strings.Repeat("x", 1<<19)
	for range 40 {
		io.WriteString(log, half)
	}
	await.Until(t, "there are four files of at most 2 MB", func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "core*.log"))
		if err != nil || len(files) != 4 {
			return false
		}
		for _, name := range files {
			if info, err := os.Stat(name); err != nil || info.Size() > 2<<20 {
				return false
			}
		}
		return true
	})
}

// The last line of a Go panic is its first one, until the child is restarted.
func TestLogOfPanic(t *testing.T) {
	t.Parallel()
	log, err := OpenLog(LogConfig{File: filepath.Join(t.TempDir(), "l")})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	io.WriteString(log, "starting\npanic: invalid page\n\ngoroutine 1 [running]:\nmain.main()\n")
	if got := log.Last(); got != "panic: invalid page" {
		t.Errorf("last: %q", got)
	}
	log.restart()
	io.WriteString(log, "starting\n")
	if got := log.Last(); got != "starting" {
		t.Errorf("last after a restart: %q", got)
	}
}

// A line is kept up to maxLogLine.
func TestLogLongLine(t *testing.T) {
	log, err := OpenLog(LogConfig{File: filepath.Join(t.TempDir(), "l")})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for range 100 {
		io.WriteString(log, strings.Repeat("y", 10<<10))
	}
	io.WriteString(log, "\n")
	if n := len(log.Last()); n != maxLogLine {
		t.Errorf("kept %d bytes, want %d", n, maxLogLine)
	}
}

func TestHTTPReadyNamesWhatItWaitsFor(t *testing.T) {
	body, code := "", 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Remote-User") != "me" {
			code = http.StatusUnauthorized
		}
		w.WriteHeader(code)
		io.WriteString(w, body)
	}))
	defer srv.Close()
	ready := HTTPReady(srv.URL+"/readyz", "", nil, http.Header{"X-Remote-User": {"me"}})
	for _, tc := range []struct {
		code       int
		body, want string
	}{
		{200, "ok", ""},
		{500, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]cache failed: reason withheld\nreadyz check failed\n",
			"500 Internal Server Error: waiting for etcd, cache"},
		{503, "busy\n", "503 Service Unavailable: busy"},
	} {
		code, body = tc.code, tc.body
		err := ready(t.Context())
		if got := errText(err); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
