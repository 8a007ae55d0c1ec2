package accesslog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// queueLength is how many records wait to be written; those that come then
	// are dropped. With records as long as they get it is 12 MiB, with usual ones
	// 2 MiB.
	queueLength = 4096
	// batchBytes is how much is written at once.
	batchBytes = 64 << 10
	// lookEvery is how often the file is compared with its name.
	lookEvery = time.Second
	// flushTimeout bounds how long the end of the process waits for what is
	// still to be written.
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
	// Registry shows how many lines were written, dropped because the queue was
	// full, or failed; nil: nobody sees them.
	Registry prometheus.Registerer
	// Logger is told when writing begins to fail. Default slog.Default().
	Logger *slog.Logger
}

// Log is an access log. Safe for concurrent use; a nil Log takes nothing.
type Log struct {
	log     *slog.Logger
	out     output
	queue   chan Record
	batch   bytes.Buffer
	handler slog.Handler
	// writing and following are what fails now; of the writer only.
	writing, following complaint

	written, dropped, failed prometheus.Counter
}

// output is where lines go.
type output interface {
	io.Writer
	// follow has further lines go to the file that has the name now.
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
	l := &Log{log: cfg.Logger, queue: make(chan Record, queueLength)}
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

// Add takes the record of a request that is over. It never blocks.
func (l *Log) Add(r Record) {
	if l == nil {
		return
	}
	select {
	case l.queue <- r.bounded():
	default:
		l.dropped.Inc()
	}
}

// Run writes until ctx ends, and then what is still in the queue: if that takes
// longer than a second, because nobody reads what is written, it is given up. A
// nil Log waits for ctx.
func (l *Log) Run(ctx context.Context) error {
	if l == nil {
		<-ctx.Done()
		return ctx.Err()
	}
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

// write turns records into lines until ctx has ended and none is left.
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

// writeAll writes a record and those that have come up behind it.
func (l *Log) writeAll(r Record) {
	lines := 0
	for {
		if err := r.write(l.handler); err != nil {
			l.failed.Inc() // no value of a record can fail to be encoded
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
		l.batch.WriteByte('\n') // what is left of a cut line does not spoil the next one
	}
	l.writing.report(l.log, "writing the access log failed", err)
	if err != nil {
		l.failed.Add(float64(lines))
		return
	}
	l.written.Add(float64(lines))
}

// complaint is said once, and again only when it was all right in between.
type complaint struct{ said bool }

func (c *complaint) report(log *slog.Logger, text string, err error) {
	if err != nil && !c.said {
		log.Warn(text, "err", err)
	}
	c.said = err != nil
}
