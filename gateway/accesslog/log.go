package accesslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource/serve/filter"
)

const (
	// queueLength bounds the records in the queue; further ones are dropped. A full
	// queue takes 12 MiB with the longest records, and 2 MiB with usual ones.
	queueLength = 4096
	// batchBytes bounds one write.
	batchBytes = 64 << 10
	// lookEvery is how often the open file is compared with its path.
	lookEvery = time.Second
	// flushTimeout bounds how long Run writes after its context has ended.
	flushTimeout = time.Second
)

// Standard is the path that stands for the standard output.
const Standard = "-"

// Config of a Log.
type Config struct {
	// Path is the file to append to, made with mode 0600 where it is missing, or
	// Standard. Required.
	Path string
	// Output is what Standard stands for. Default os.Stdout.
	Output io.Writer
	// Registry gets portico_access_log_lines_total: lines that were written, dropped
	// because the queue was full, or failed. nil: it is not registered.
	Registry prometheus.Registerer
	// Logger logs when writing begins to fail. Default slog.Default().
	Logger *slog.Logger
}

// Log is an access log. Safe for concurrent use.
type Log struct {
	log     *slog.Logger
	out     output
	queue   chan record
	batch   bytes.Buffer
	handler slog.Handler
	// writing and following log failures; used by the writing goroutine only.
	writing, following complaint

	written, dropped, failed prometheus.Counter
}

// output is a file or the standard output.
type output interface {
	io.Writer
	// follow reopens the file if another one has its path.
	follow() error
	Close() error
}

// Open opens the log; nothing is written before Run.
func Open(cfg Config) (*Log, error) {
	if cfg.Path == "" {
		return nil, errors.New("open access log: no path")
	}
	if cfg.Output == nil {
		cfg.Output = os.Stdout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	l := &Log{log: cfg.Logger, queue: make(chan record, queueLength)}
	l.handler = slog.NewJSONHandler(&l.batch, nil)
	lines := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portico_access_log_lines_total",
		Help: "Lines of the access log: written, dropped because too many waited to be written, or failed to be.",
	}, []string{"result"})
	l.written, l.dropped, l.failed = lines.WithLabelValues("written"), lines.WithLabelValues("dropped"), lines.WithLabelValues("failed")
	if cfg.Path == Standard {
		l.out = standard{cfg.Output}
	} else {
		f, err := openFile(cfg.Path)
		if err != nil {
			return nil, err
		}
		l.out = f
	}
	if cfg.Registry != nil {
		if err := cfg.Registry.Register(lines); err != nil {
			_ = l.out.Close()
			return nil, err
		}
	}
	return l, nil
}

// Add implements filter.RequestLog.
func (l *Log) Add(end *filter.RequestEnd) { l.add(recordOf(end)) }

func (l *Log) add(r record) {
	select {
	case l.queue <- r.bounded():
	default:
		l.dropped.Inc()
	}
}

// Run writes until ctx ends, and then the rest of the queue, for at most flushTimeout.
func (l *Log) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.write(ctx)
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(flushTimeout):
		l.log.Warn("access log gave up on what was still to be written", "lines", len(l.queue))
	}
	return ctx.Err()
}

// write writes records until ctx has ended and the queue is empty.
func (l *Log) write(ctx context.Context) {
	defer l.out.Close()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case r := <-l.queue:
			l.writeAll(r)
		case <-look.C:
			l.following.report(l.log, "following the access log's file failed", l.out.follow())
		case <-ctx.Done():
			select {
			case r := <-l.queue:
				l.writeAll(r)
				continue
			default:
				return
			}
		}
	}
}

// writeAll writes a record and those in the queue, at most batchBytes.
func (l *Log) writeAll(r record) {
	lines := 0
	for {
		if err := r.write(l.handler); err != nil {
			l.failed.Inc() // cannot happen: every value can be encoded
		} else {
			lines++
		}
		if l.batch.Len() >= batchBytes {
			break
		}
		select {
		case r = <-l.queue:
			continue
		default:
		}
		break
	}
	n, err := l.out.Write(l.batch.Bytes())
	l.batch.Reset()
	if err != nil && n > 0 {
		l.batch.WriteByte('\n') // the next line is separate from one that was cut
	}
	l.writing.report(l.log, "writing the access log failed", err)
	if err != nil {
		l.failed.Add(float64(lines))
		return
	}
	l.written.Add(float64(lines))
}

// complaint logs a failure once until there is a success.
type complaint struct{ said bool }

func (c *complaint) report(log *slog.Logger, text string, err error) {
	if err != nil && !c.said {
		log.Warn(text, "err", err)
	}
	c.said = err != nil
}

// standard is an output that has no path.
type standard struct{ io.Writer }

func (standard) follow() error { return nil }

// Close does nothing: the process owns the output.
func (standard) Close() error { return nil }

// file is an output with a path, at which another file may appear.
type file struct {
	path string
	file *os.File
}

func openFile(path string) (*file, error) {
	f, err := appendTo(path)
	if err != nil {
		return nil, err
	}
	return &file{path: path, file: f}, nil
}

// appendTo opens without blocking: a named pipe without a reader is an error.
func appendTo(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open access log: %w", err)
	}
	return f, nil
}

// Write appends whole lines.
func (f *file) Write(lines []byte) (int, error) { return f.file.Write(lines) }

// follow reopens the file if another one, or none, has its path. On failure the open one
// stays in use.
func (f *file) follow() error {
	named, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		held, err := f.file.Stat()
		if err != nil {
			return err
		}
		if os.SameFile(named, held) {
			return nil
		}
	}
	next, err := appendTo(f.path)
	if err != nil {
		return err
	}
	_ = f.file.Close() // every write has succeeded or was counted as failed
	f.file = next
	return nil
}

func (f *file) Close() error { return f.file.Close() }
