package server

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico/cmd/internal/embedetcd"
	"portico/cmd/internal/pace"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/config"
)

// NewEtcd returns the command of the embedded etcd, a child of `portico up`. It is a
// process of its own because etcd exits when its disk fails: the gateway serves from
// memory until up has started etcd again.
func NewEtcd() *cobra.Command {
	var dir, sockets string
	var quota Quota
	var logs LogFlags
	cmd := &cobra.Command{
		Use:     "etcd",
		Short:   "Run the embedded etcd of portico up",
		Long:    "Run the embedded etcd of portico up, which starts this command by itself.",
		Example: "  portico etcd --data-dir=./data/etcd --socket-dir=/run/portico",
		Args:    cli.NoArguments,
		Hidden:  true,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return refused(cmd.Flags(), logs.check(), quota.Check()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, _, err := serverProcess(cmd.Context(), logs, pace.ForStorage)
			if err != nil {
				return err
			}
			member, err := embedetcd.Start(cmd.Context(), embedetcd.Config{
				Dir: dir, SocketDir: sockets, Logger: log, Quota: int64(quota),
				OnFatal: func(err error) {
					fmt.Fprintln(cmd.ErrOrStderr(), "portico: etcd: "+err.Error())
					os.Exit(1)
				},
			})
			if err != nil {
				return cli.QuietIfStopped(cmd.Context(), err)
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
	quota.Add(fs)
	logs.Add(fs)
	config.AddFlag(fs)
	for _, name := range []string{"data-dir", "socket-dir"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // no such flag
		}
	}
	return cmd
}

// Quota is --quota-backend-bytes.
type Quota int64

// leastQuota is the least value: an empty installation needs less.
const leastQuota = 64 << 20

func (q *Quota) Add(fs *pflag.FlagSet) {
	fs.Int64Var((*int64)(q), "quota-backend-bytes", 8<<30, "`size` of the database of the embedded etcd, in bytes, at which writes are rejected")
}

func (q Quota) Check() error {
	if q < leastQuota {
		return fmt.Errorf("--quota-backend-bytes %d: must be at least %d", int64(q), leastQuota)
	}
	return nil
}
