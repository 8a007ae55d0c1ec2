// Package storage holds the commands that work on the objects in etcd as they are stored.
//
// Runs in: portico storage.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"portico/cmd/internal/datadir"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
	"portico/cmd/portico/server"
	"portico/cmd/portico/stored"
	"portico/resource/encryption"
	"portico/resource/etcd"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "storage",
		Short:   "Work on objects as they are stored in etcd",
		Example: rewriteExample,
		Args:    cli.KnownCommand,
		RunE:    cli.ShowHelp,
	}
	cmd.AddCommand(newRewrite())
	return cmd
}

const rewriteExample = `  # all Secrets of the portico up of this user
  portico storage rewrite secrets --encryption-provider-config=encryption.yaml

  # all objects of all resources
  portico storage rewrite --all --encryption-provider-config=encryption.yaml

  # in an etcd of your own, 50 objects a second
  portico storage rewrite secrets widgets.example.com --rate=50 --encryption-provider-config=encryption.yaml \
    --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key`

// rewriteOptions are the flags of `portico storage rewrite`.
type rewriteOptions struct {
	folder     inspect.Folder
	etcd       server.EtcdFlags
	encryption encryption.Config
	all        bool
	rate       int
}

func newRewrite() *cobra.Command {
	var o rewriteOptions
	cmd := &cobra.Command{
		Use:   "rewrite RESOURCE...",
		Short: "Encrypt stored objects with the first key",
		Long: `Write the objects of resources, named as secrets or widgets.example.com, again with the first key of the first provider that
--encryption-provider-config has for them; provider identity first decrypts them. Objects that have it already are left alone, so
that a command that was stopped continues when it is given again. It works beside running processes, which must all have read
the configuration: a write of theirs is never lost. Exit code 1 means that an object could not be read.`,
		Example: rewriteExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
			return cli.QuietIfStopped(cmd.Context(), err)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.all, "all", false, "rewrite the objects of all resources")
	fs.IntVar(&o.rate, "rate", 200, "maximum `number` of objects that are written a second")
	server.AddEncryptionFile(fs, &o.encryption)
	o.folder.Add(cmd)
	o.etcd.Add(fs, "`URLs` of an etcd of your own, separated by commas (default: the embedded etcd of the data folder)")
	o.etcd.AddPrefix(fs)
	return cmd
}

func (o *rewriteOptions) check(resources []string) error {
	switch {
	case o.encryption.File == "":
		return errors.New("--encryption-provider-config is missing: the file that the processes have")
	case o.all && len(resources) > 0:
		return errors.New("--all includes all resources: name none, or leave it out")
	case !o.all && len(resources) == 0:
		return errors.New("name resources, as in portico storage rewrite secrets, or use --all")
	case o.rate < 1:
		return fmt.Errorf("--rate=%d: must be at least 1", o.rate)
	}
	return nil
}

// open returns a client of etcd that encrypts, and knows all resources.
func (o *rewriteOptions) open() (client *etcd.Client, paths map[string]string, stop func(), err error) {
	cfg := o.etcd.Config(slog.New(slog.DiscardHandler))
	if len(cfg.Endpoints) == 0 {
		if err := o.folder.Find(); err != nil {
			return nil, nil, nil, err
		}
		socket, err := datadir.EtcdSocket(o.folder.Path)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("no portico up runs on %s with an etcd of its own: name the folder with --data-dir, or an etcd with --etcd-servers", o.folder.Path)
		}
		cfg.Endpoints = []string{"unix://" + socket}
	}
	kinds, err := stored.Kinds()
	if err != nil {
		return nil, nil, nil, err
	}
	e, err := encryption.Open(o.encryption)
	if err != nil {
		return nil, nil, nil, err
	}
	e.Apply(&cfg)
	if client, err = etcd.Open(cfg); err != nil {
		e.Close()
		return nil, nil, nil, err
	}
	paths = map[string]string{}
	for path, k := range kinds {
		client.Store(&k.Info)
		if k.Resource != "" { // else it is no resource of the API
			paths[k.GroupResource().String()] = path
		}
	}
	return client, paths, func() { client.Close(); e.Close() }, nil
}

func (o *rewriteOptions) run(ctx context.Context, resources []string, w, errOut io.Writer) error {
	if err := o.check(resources); err != nil {
		return err
	}
	client, paths, stop, err := o.open()
	if err != nil {
		return err
	}
	defer stop()
	counts, err := client.Count(ctx, 0)
	if err != nil {
		return err
	}
	if o.all {
		resources = append(resources, "")
	}
	r := &rewriting{client: client, limit: rate.NewLimiter(rate.Limit(o.rate), o.rate), counts: counts, out: w, errOut: errOut}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(resources))) {
		path, known := paths[name]
		switch plural, group, grouped := strings.Cut(name, "."); {
		case name == "" || known:
		case grouped:
			path = group + "/" + plural
		default:
			return fmt.Errorf("%q is no resource: name it as in secrets, deployments.apps or widgets.example.com", name)
		}
		if err := r.resource(ctx, name, path); err != nil {
			return err
		}
	}
	if r.unreadable > 0 {
		return fmt.Errorf("%d objects could not be read, such as: %w", r.unreadable, r.example)
	}
	return nil
}

// rewriting is one run of the command.
type rewriting struct {
	client     *etcd.Client
	limit      *rate.Limiter
	counts     map[string]int64
	out        io.Writer
	errOut     io.Writer
	unreadable int
	example    error // of an object that cannot be read
}

// resource rewrites the objects below a storage path; all if that is "".
func (r *rewriting) resource(ctx context.Context, name, path string) error {
	what, total := name, r.counts[path]
	if path == "" {
		what = "all resources"
		for _, n := range r.counts {
			total += n
		}
	} else {
		path += "/"
	}
	p := cli.StartProgress(ctx, r.errOut, "rewriting "+what, total, func(n int64) string { return fmt.Sprintf("%d objects", n) })
	defer p.Stop()
	done := map[etcd.Rewritten]int{}
	err := r.client.Rewrite(ctx, path, func(result etcd.Rewritten, unreadable error) error {
		done[result]++
		p.Add(1)
		if unreadable != nil {
			r.unreadable++
			r.example = unreadable
		}
		if result == etcd.Again {
			return r.limit.Wait(ctx)
		}
		return ctx.Err()
	})
	p.Stop()
	fmt.Fprintf(r.out, "%s: %d rewritten, %d had the first key already, %d could not be read\n", what, done[etcd.Again], done[etcd.Current], done[etcd.Unreadable])
	return err
}
