package up

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// errorLines filters the log of the etcd process, line by line, for standard error:
// why the process ended, and errors that are not etcd's own (etcd logs several for one
// cause). A sentence is repeated after repeatAfter at the earliest.
type errorLines struct {
	to     io.Writer
	prefix string
	shown  map[string]time.Time
	// starting leaves out why the process ended, which is the error of a start that fails.
	starting atomic.Bool
}

const (
	repeatAfter = time.Minute
	maxShown    = 100 // sentences remembered
)

// Write implements io.Writer and never fails.
func (e *errorLines) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "{") {
		text = textOfJSON(text)
	}
	text, shown := e.sentence(text)
	if !shown {
		return len(line), nil
	}
	if when, ok := e.shown[text]; ok && time.Since(when) < repeatAfter {
		return len(line), nil
	}
	if e.shown == nil || len(e.shown) == maxShown {
		e.shown = map[string]time.Time{}
	}
	e.shown[text] = time.Now()
	fmt.Fprintln(e.to, e.prefix+text)
	return len(line), nil
}

// sentence returns what a line says to people; shown is false if it is not for standard error.
func (e *errorLines) sentence(text string) (sentence string, shown bool) {
	if _, record, ok := strings.Cut(text, " level=ERROR msg="); ok && !strings.Contains(record, " by=etcd") {
		return unquoteMessage(record), true
	}
	if e.starting.Load() {
		return "", false
	}
	if reason, ok := strings.CutPrefix(text, "portico: "); ok {
		return strings.TrimPrefix(reason, "etcd: "), true
	}
	return text, strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
}

// unquoteMessage returns a record of slog's text format that begins with the
// message, with the message as it was before it was quoted.
func unquoteMessage(record string) string {
	quoted, err := strconv.QuotedPrefix(record)
	if err != nil {
		return record
	}
	message, err := strconv.Unquote(quoted)
	if err != nil {
		return record
	}
	return message + record[len(quoted):]
}

// textOfJSON returns a line of --log-format=json in the form of the text format.
func textOfJSON(line string) string {
	var record map[string]any
	if json.Unmarshal([]byte(line), &record) != nil {
		return line
	}
	message, _ := record["msg"].(string)
	text := fmt.Sprintf("time=%v level=%v msg=%q", record["time"], record["level"], message)
	for _, key := range slices.Sorted(maps.Keys(record)) {
		if key != "time" && key != "level" && key != "msg" {
			text += fmt.Sprintf(" %s=%v", key, record[key])
		}
	}
	return text
}
