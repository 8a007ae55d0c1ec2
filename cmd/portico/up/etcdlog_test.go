package up

import (
	"bytes"
	"fmt"
	"testing"

	"portico/cmd/internal/logging"
)

// Of the lines of a log, errors and panics are shown, as sentences and once.
func TestErrorLines(t *testing.T) {
	t.Parallel()
	for _, format := range []string{logging.Text, logging.JSON} {
		t.Run(format, func(t *testing.T) { testErrorLines(t, format) })
	}
}

func testErrorLines(t *testing.T, format string) {
	var out bytes.Buffer
	lines := &errorLines{to: &out, prefix: "portico: etcd: "}
	log, err := logging.New(lines, format, logging.NewLevels())
	if err != nil {
		t.Fatal(err)
	}
	log.Info("serving")
	log.Warn("slow")
	for range 3 {
		log.Error(`the disk of "x" is nearly full`, "freeBytes", 7)
	}
	log.Error("other")
	log.Error(`the disk of "x" is nearly full`, "freeBytes", 7)
	log.Error("writeAt failed", "by", "etcd")
	lines.starting.Store(true)
	fmt.Fprintln(lines, "portico: start etcd: the error of up has this")
	lines.starting.Store(false)
	fmt.Fprintln(lines, "portico: etcd: failed to commit tx: no space left on device")
	fmt.Fprintln(lines, "panic: invalid page")
	fmt.Fprintln(lines, "goroutine 1 [running]:")
	want := "portico: etcd: the disk of \"x\" is nearly full freeBytes=7\nportico: etcd: other\n" +
		"portico: etcd: failed to commit tx: no space left on device\nportico: etcd: panic: invalid page\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
