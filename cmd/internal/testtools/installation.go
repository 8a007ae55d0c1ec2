package testtools

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"portico/internal/testing/await"
)

// Installation is a running `portico up`. Its methods may be called
// concurrently.
type Installation struct {
	// Dir is the data folder, Endpoint the URL of the gateway, Kubeconfig the path of
	// the administrator's kubeconfig, Etcd the URL of etcd.
	Dir, Endpoint, Kubeconfig, Etcd string
	// Cmd is the supervisor.
	Cmd *exec.Cmd
	// Output is what the supervisor has printed.
	Output *Output
	// Exited receives the result of Cmd.Wait and is then closed.
	Exited <-chan error

	stop sync.Once
}

// Launch runs Start and returns when the installation is ready.
func Launch(dir string, args ...string) (*Installation, error) { return LaunchWith(nil, dir, args...) }

// LaunchWith is Launch with further variables in the environment.
func LaunchWith(env []string, dir string, args ...string) (*Installation, error) {
	program, err := Build(Portico)
	if err != nil {
		return nil, err
	}
	return launch(program, env, dir, args)
}

// launch starts an installation in a turn and waits until it is ready.
func launch(program string, env []string, dir string, args []string) (*Installation, error) {
	end, err := turn()
	if err != nil {
		return nil, err
	}
	defer end()
	i, err := start(program, env, dir, args)
	if err != nil {
		return nil, err
	}
	return i, i.launched()
}

// launched waits until the installation is ready, and kills it if it does not become so.
func (i *Installation) launched() error {
	err := i.ready()
	if err != nil {
		i.Cmd.Process.Kill()
	}
	return err
}

// Start builds portico if needed, starts `portico up` on a free port of 127.0.0.1 with its
// data in dir, and does not wait. args may have another --listen. Endpoint, Kubeconfig and Etcd are "".
func Start(dir string, args ...string) (*Installation, error) { return StartWith(nil, dir, args...) }

// StartWith is Start with further variables in the environment.
func StartWith(env []string, dir string, args ...string) (*Installation, error) {
	program, err := Build(Portico)
	if err != nil {
		return nil, err
	}
	return start(program, env, dir, args)
}

// LaunchProgram is Launch with a portico that was built elsewhere.
func LaunchProgram(program, dir string, args ...string) (*Installation, error) {
	return launch(program, nil, dir, args)
}

func start(program string, env []string, dir string, args []string) (*Installation, error) {
	exited := make(chan error, 1)
	i := &Installation{Dir: dir, Exited: exited, Output: NewOutput()}
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--listen=") }) {
		args = append([]string{"--listen=127.0.0.1:0"}, args...)
	}
	i.Cmd = exec.Command(program, append([]string{"up", "--data-dir=" + dir}, args...)...)
	i.Cmd.Stdout, i.Cmd.Stderr = i.Output, i.Output
	alive, err := lifeline()
	if err != nil {
		return nil, err
	}
	i.Cmd.ExtraFiles, i.Cmd.Env = []*os.File{alive}, append(append(os.Environ(), env...), "PORTICO_LIFELINE_FD=3")
	if err := i.Cmd.Start(); err != nil {
		return nil, fmt.Errorf("start portico up: %w", err)
	}
	go func() {
		exited <- i.Cmd.Wait()
		close(exited)
	}()
	return i, nil
}

// lifeline returns the reading end of a pipe that closes when this process ends for any
// reason, which ends `portico up`.
var lifeline = sync.OnceValues(func() (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make lifeline: %w", err)
	}
	lifelineEnd = write
	return read, nil
})

// lifelineEnd keeps the writing end open.
//
//lint:ignore U1000 a variable that nothing reads
var lifelineEnd *os.File

// ready waits until the installation is ready and parses the addresses that it prints.
func (i *Installation) ready() error {
	if err := i.Await("Ctrl-C stops it"); err != nil {
		return err
	}
	for name, to := range map[string]*string{"endpoint": &i.Endpoint, "kubeconfig": &i.Kubeconfig, "etcd": &i.Etcd} {
		m := regexp.MustCompile(`(?m)^  ` + name + ` +(\S+)$`).FindStringSubmatch(i.Output.String())
		if m == nil {
			return fmt.Errorf("portico up does not print its %s:\n%s", name, i.Output)
		}
		*to = m[1]
	}
	return nil
}

// Await waits until the installation has printed text, for as long as the test has time.
func (i *Installation) Await(text string) error {
	deadline := time.After(await.Patience())
	for !strings.Contains(i.Output.String(), text) {
		select {
		case <-i.Output.grown:
		case err := <-i.Exited:
			return fmt.Errorf("portico up ended: %v\n%s", err, i.Output)
		case <-deadline:
			return fmt.Errorf("portico up has not printed %q within %v:\n%s", text, await.Patience(), i.Output)
		}
	}
	return nil
}

// Stop ends the installation in order and waits for that, for as long as the test has time.
// To stop one that has ended is no error.
func (i *Installation) Stop() error {
	// Once: a second signal would end it at once.
	i.stop.Do(func() { i.Cmd.Process.Signal(syscall.SIGTERM) })
	select {
	case err := <-i.Exited:
		if err != nil && !strings.Contains(err.Error(), "killed") {
			return fmt.Errorf("portico up ended with %w:\n%s", err, i.Output)
		}
		return nil
	case <-time.After(await.Patience()):
		i.Cmd.Process.Kill()
		return fmt.Errorf("portico up does not stop within %v:\n%s", await.Patience(), i.Output)
	}
}

// Output collects what a process prints. It is safe for concurrent use.
type Output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	grown chan struct{}
}

// NewOutput returns an empty Output.
func NewOutput() *Output { return &Output{grown: make(chan struct{}, 1)} }

// Write appends p.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.grown <- struct{}{}:
	default:
	}
	return o.buf.Write(p)
}

// String returns everything so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
