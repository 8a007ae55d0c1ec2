package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"
)

// newEncryptionCommand returns the command that measures what encryption of stored objects costs.
func newEncryptionCommand() *cobra.Command {
	o := options{
		workers: 8, connections: 4, rounds: 4, objects: 100000, size: 1000, watchers: 100, window: 50, threads: 1,
		time: 3 * time.Second, rest: 5 * time.Second, limit: 45 * time.Minute,
	}
	cmd := &cobra.Command{
		Use:   "encryption --portico PROGRAM",
		Short: "Measure 100,000 encrypted Secrets",
		Long: "Start three installations, of which two encrypt Secrets, by aesgcm and by a KMS v2 plugin that this program serves. Create\n" +
			"Secrets in all of them, and measure create, GET, LIST and watch in turns. Then kill the core server of each --rounds times\n" +
			"and measure the time until it serves a Secret and is ready, its processor time until then, and its memory.",
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.portico == "" || o.rounds < 1 || o.objects < o.workers || o.objects%o.rounds != 0 {
				return errors.New("encryption needs --portico, at least 1 of --rounds, and a multiple of it of --objects")
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.limit, fmt.Errorf("not finished within --limit=%v", o.limit))
			defer cancel()
			return measureEncryption(ctx, o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.portico, "portico", "", "`program` to start new installations with, in temporary folders")
	fs.IntVar(&o.objects, "objects", o.objects, "number of Secrets in each installation")
	fs.IntVar(&o.size, "size", o.size, "size of a Secret as JSON in bytes")
	fs.IntVar(&o.rounds, "rounds", o.rounds, "number of rounds of each measurement")
	fs.IntVar(&o.workers, "workers", o.workers, "number of requests in flight")
	fs.DurationVar(&o.limit, "limit", o.limit, "time limit of the run, without stopping the installations")
	return cmd
}

func measureEncryption(ctx context.Context, o options, out, errOut io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "kms") // the path of a socket is short
	if err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	defer os.RemoveAll(folder)
	plugin := "unix://" + filepath.Join(folder, "s")
	stop, err := serveKMS(filepath.Join(folder, "s"))
	if err != nil {
		return err
	}
	defer stop()
	names := []string{"no encryption", "aesgcm", "KMS v2"}
	var runners []*runner
	for i, provider := range []string{
		"", "aesgcm: {keys: [{name: bench, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}",
		fmt.Sprintf("kms: {apiVersion: v2, name: bench, endpoint: %q}", plugin),
	} {
		own := o
		if provider != "" {
			own.flags = func(dir string) ([]string, error) { return encryptSecrets(dir, provider) }
		}
		r, stop, err := startRunner(ctx, &own, fmt.Sprintf("encryption-%d", i), errOut)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err := r.setUp(ctx); err != nil {
			return err
		}
		runners = append(runners, r)
	}
	report := newReport(&o)
	defer func() { report.print(out) }() // the results so far, even after a failure
	if err := compareWork(ctx, report, runners, names, secrets, 0); err != nil {
		return err
	}
	for i, r := range runners {
		report.addMemory(names[i]+", before the starts", r.procs.memory())
	}
	return compareStarts(ctx, report, runners, names)
}

// encryptSecrets writes a configuration and returns its flag.
func encryptSecrets(dir, provider string) ([]string, error) {
	file := filepath.Join(dir, "encryption.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{" + provider + "}]}]\n"
	return []string{"--encryption-provider-config=" + file}, os.WriteFile(file, []byte(text), 0o600)
}

// compareStarts kills the core servers in turns and measures their return. The first installation is the yardstick.
func compareStarts(ctx context.Context, report *report, runners []*runner, names []string) error {
	first, ready := make([][]sample, len(runners)), make([][]sample, len(runners))
	for round := range runners[0].o.rounds {
		for i, r := range runners {
			f, all, err := r.restartCore(ctx, secrets(r))
			if err != nil {
				return fmt.Errorf("restart the core server with %s: %w", names[i], err)
			}
			r.progress.say("core server with %s killed, round %d of %d: first GET after %s, ready after %s", names[i], round+1, r.o.rounds, seconds(f.took), seconds(all.took))
			first[i], ready[i] = append(first[i], f), append(ready[i], all)
		}
	}
	for i, r := range runners {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(r.o.rest):
		}
		report.addMemory(names[i]+", after the last start", r.procs.memory())
		if i == 0 {
			continue
		}
		each := func(s sample) float64 { return s.took.Seconds() / float64(s.ops) }
		report.add(row{what: "core server killed until the first GET, " + names[i], unit: "s", figure: each, ours: first[i], yard: first[0], yardstick: names[0]})
		report.add(row{what: "core server killed until it is ready, " + names[i], unit: "s", figure: each, ours: ready[i], yard: ready[0], yardstick: names[0]})
	}
	return nil
}

// restartCore kills the core server, and returns the time until it serves an object, and the time and its processor time until it
// is ready.
func (r *runner) restartCore(ctx context.Context, s *subject) (first, ready sample, err error) {
	before := r.procs["core"]
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		return first, ready, fmt.Errorf("kill: %w", err)
	}
	began := time.Now()
	for _, step := range []struct {
		to  *sample
		ask func() error
	}{
		{new(sample), func() error { return r.findRestarted("core", before) }},
		{&first, func() error {
			_, err := r.target.discard(ctx, 0, request{path: s.objectPath(r.o.objects / 2)})
			return err
		}},
		{&ready, func() error { return readyAt(ctx, filepath.Join(r.o.dataDir, "run", "core.sock")) }},
	} {
		if err := until(ctx, step.ask); err != nil {
			return first, ready, err
		}
		*step.to = sample{ops: 1, took: time.Since(began)}
	}
	spent, err := cpuClock(r.procs["core"])
	ready.cpu = cpuTimes{"core": spent}
	return first, ready, err
}

// kms is a KMS v2 plugin that adds the name of its key to what it encrypts.
type kms struct {
	kmsapi.UnimplementedKeyManagementServiceServer
}

const kmsKey = "bench"

// serveKMS serves a plugin on a unix socket.
func serveKMS(socket string) (stop func(), err error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("serve KMS plugin: %w", err)
	}
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, kms{})
	go server.Serve(l) // it ends with stop
	return server.Stop, nil
}

// Status implements the protocol.
func (kms) Status(context.Context, *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	return &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: kmsKey}, nil
}

// Encrypt implements the protocol.
func (kms) Encrypt(_ context.Context, in *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	return &kmsapi.EncryptResponse{Ciphertext: append([]byte(kmsKey), in.Plaintext...), KeyId: kmsKey}, nil
}

// Decrypt implements the protocol.
func (kms) Decrypt(_ context.Context, in *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	return &kmsapi.DecryptResponse{Plaintext: bytes.TrimPrefix(in.Ciphertext, []byte(kmsKey))}, nil
}
