package inspect

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/client"
)

// Flags are those of a command that reads an installation.
type Flags struct {
	Out    cli.OutputFlag
	Folder Folder
	client client.Flags
}

// Command adds the flags to a command without arguments, which runs run.
func (f *Flags) Command(cmd *cobra.Command, run func(ctx context.Context, out, warnings io.Writer) error) *cobra.Command {
	cmd.Args = cli.NoArguments
	cmd.Flags().SortFlags = false
	f.Out.Add(cmd)
	f.Folder.Add(cmd)
	f.client.Add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.Out.Check(); err != nil {
			return err
		}
		return cli.QuietIfStopped(cmd.Context(), run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
	}
	return cmd
}

// Open returns a client of the gateway, by the rules of client.Flags, and the folder if it is that
// of the same installation, else nil; the folder also with an error of the kubeconfig. With
// --data-dir the kubeconfig is that of the folder, unless --kubeconfig names one; so it is for the
// default folder, also where portico up has stopped, if no other kubeconfig exists.
func (f *Flags) Open(warnings io.Writer) (*client.Client, *Folder, error) {
	flags, folder := &f.client, &f.Folder
	// The default folder is left out if it may not be read and a kubeconfig leads to a gateway.
	if err := folder.Find(); err != nil && (folder.named || folder.Path == "" || !flags.Found()) {
		return nil, nil, err
	}
	own := folder.File("kubeconfig")
	config, err := clientcmd.LoadFromFile(own)
	there := err == nil
	if folder.named || there && !flags.Found() {
		flags.Use(own)
	}
	gateway, err := flags.Open(warnings)
	if err != nil && (folder.named || there) {
		return nil, folder, err
	}
	if err != nil {
		return nil, nil, err
	}
	if folder.named {
		return gateway, folder, nil
	}
	if there {
		for _, cluster := range config.Clusters {
			if cluster.Server == gateway.Host() {
				return gateway, folder, nil
			}
		}
	}
	return gateway, nil, nil
}
