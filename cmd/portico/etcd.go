package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portico/cmd/internal/embedetcd"
	"portico/cmd/internal/pace"
)

// newEtcd returns the command of the embedded etcd, a child of `portico up`. It is a
// process of its own because etcd exits when its disk fails: the gateway serves from
// memory until up has started etcd again.
func newEtcd() *cobra.Command {
	var dir, sockets string
	var verbosity int
	cmd := &cobra.Command{
		Use:     "etcd",
		Short:   "Run the embedded etcd of portico up",
		Long:    "Run the embedded etcd of portico up, which starts this command by itself.",
		Example: "  portico etcd --data-dir=./data/etcd --socket-dir=/run/portico",
		Args:    noArguments,
		Hidden:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := serverProcess(cmd.Context(), verbosity, pace.ForStorage)
			if err != nil {
				return err
			}
			member, err := embedetcd.Start(cmd.Context(), embedetcd.Config{
				Dir: dir, SocketDir: sockets, Logger: log,
				OnFatal: func(err error) {
					fmt.Fprintln(os.Stderr, "portico: etcd: "+err.Error())
					os.Exit(1)
				},
			})
			if err != nil {
				return quietIfStopped(cmd.Context(), err)
			}
			defer member.Close()
			select {
			case <-cmd.Context().Done():
				return nil
			case err := <-member.Failed():
				return fmt.Errorf("run etcd: %w", err)
			}
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&dir, "data-dir", "", "data `folder`; made if needed")
	fs.StringVar(&sockets, "socket-dir", "", "`folder` of the socket etcd.sock")
	addVerbosity(fs, &verbosity)
	for _, name := range []string{"data-dir", "socket-dir"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // no such flag
		}
	}
	return cmd
}

// errorLines filters the log of the etcd process, line by line, for standard error:
// why the process ended, and errors that are not etcd's own (etcd logs several for one
// cause). A sentence is repeated after repeatAfter at the earliest.
type errorLines struct {
	to     io.Writer
	prefix string
	shown  map[string]time.Time
}

const (
	repeatAfter = time.Minute
	maxShown    = 100 // sentences remembered
)

// Write implements io.Writer and never fails.
func (e *errorLines) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if _, record, ok := strings.Cut(text, " level=ERROR msg="); ok && !strings.Contains(record, " by=etcd") {
		text = unquoteMessage(record)
	} else if reason, ok := strings.CutPrefix(text, "portico: "); ok {
		text = strings.TrimPrefix(reason, "etcd: ")
	} else if !strings.HasPrefix(text, "panic: ") && !strings.HasPrefix(text, "fatal error: ") {
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
