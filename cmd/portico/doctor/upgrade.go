package doctor

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/embedetcd"
	"portico/cmd/portico/client"
	"portico/cmd/portico/config"
	"portico/cmd/portico/inspect"
	"portico/cmd/portico/server"
	"portico/cmd/portico/stored"
	"portico/resource/encryption"
	"portico/resource/etcd"
	"portico/resource/serve/version"
)

const upgradeExample = `  # the portico up of this user, whether it runs or not
  portico upgrade-check

  # another data folder, and the configuration file that it is started with
  portico upgrade-check --data-dir=./data --config=portico.yaml

  # an etcd of your own; the kubeconfig leads to the gateway, for the versions that run
  portico upgrade-check --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key`

// upgradeOptions are the flags of upgrade-check.
type upgradeOptions struct {
	inspect.Flags
	etcd       server.EtcdFlags
	encryption encryption.Config
	config     string
	processes  config.Processes
}

// NewUpgradeCheck returns the command upgrade-check. Configuration files are for the processes.
func NewUpgradeCheck(processes config.Processes) *cobra.Command {
	o := upgradeOptions{processes: processes}
	cmd := &cobra.Command{
		Use:   "upgrade-check",
		Short: "Say whether this version can take over an installation",
		Long: `Say whether this version of portico can take over what another one has stored, and whether there is a way back. Run it with
the version that is to be installed, a newer one or an older one, while the other one runs or after it was stopped. It reads
every object in etcd and changes nothing. Exit code 1 means that a check failed; warnings leave it 0.`,
		Example: upgradeExample,
	}
	fs := cmd.Flags()
	o.etcd.Add(fs, "`URLs` of an etcd of your own, separated by commas (default: the embedded etcd of the data folder)")
	o.etcd.AddPrefix(fs)
	server.AddEncryptionFile(fs, &o.encryption)
	fs.StringVar(&o.config, "config", "", "configuration `file` to check (default: none)")
	return o.Command(cmd, o.run)
}

func (o *upgradeOptions) run(ctx context.Context, w, warnings io.Writer) error {
	gateway, folder, err := o.Open(warnings)
	if o.Folder.Path == "" {
		return err
	}
	t, err := o.observe(ctx, gateway, folder, err)
	if err != nil {
		return err
	}
	results := t.examine(ctx, upgradeChecks)
	if err := print(w, o.Out, results, map[string]any{"version": version.Version(), "stored": t.stored}); err != nil {
		return err
	}
	return verdictOf(results)
}

// observe reads what the checks look at. Without an etcd there is nothing to say.
func (o *upgradeOptions) observe(ctx context.Context, gateway *client.Client, folder *inspect.Folder, unopened error) (*target, error) {
	asked, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := observe(asked, gateway, folder, unopened)
	if len(o.etcd.Servers) == 0 {
		if err := datadir.CheckAccess(o.Folder.Path); err != nil {
			return nil, err
		}
		// A gateway elsewhere does not lead to its etcd.
		if folder == nil && gateway != nil {
			return nil, fmt.Errorf("%s is not the installation of %s: name its folder with --data-dir, or its etcd with --etcd-servers", gateway.Host(), o.Folder.Path)
		}
		t.folder, t.holder, t.embedded = &o.Folder, o.Folder.Holder(), true
	}
	reader, err := stored.NewReader(o.etcd.Prefix())
	if err != nil {
		return nil, err
	}
	encrypted, err := encryption.Open(o.encryption)
	if err != nil {
		return nil, err
	}
	defer encrypted.Close()
	if encrypted != nil {
		reader.Decrypt = func(of schema.GroupResource, value, key []byte) ([]byte, error) {
			plain, _, err := encrypted.FromStorage(of, value, key)
			return plain, err
		}
	}
	switch {
	case len(o.etcd.Servers) > 0:
		err = t.readEtcd(ctx, o.etcd.Config(slog.New(slog.DiscardHandler)), reader)
	case t.holder != 0:
		var socket string
		if socket, err = datadir.EtcdSocket(o.Folder.Path); err != nil {
			return nil, fmt.Errorf("portico up runs on %s with an etcd of your own: name it with --etcd-servers", o.Folder.Path)
		}
		cfg := o.etcd.Config(slog.New(slog.DiscardHandler))
		cfg.Endpoints = []string{"unix://" + socket}
		err = t.readEtcd(ctx, cfg, reader)
	default:
		err = t.readFile(embedetcd.DatabaseFile(o.Folder.File("etcd")), reader)
	}
	if err != nil {
		return nil, err
	}
	t.stored, t.definitions = reader.Contents(), reader.Definitions()
	if t.configFile = o.config; o.config != "" {
		t.config = config.Problems(o.config, o.processes)
	}
	return t, nil
}

// readEtcd reads an etcd that runs.
func (t *target) readEtcd(ctx context.Context, cfg etcd.Config, reader *stored.Reader) error {
	if err := etcd.Diagnose(ctx, cfg); err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	c, err := etcd.Open(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	t.etcdVersion = status.Version
	return c.Walk(ctx, reader.Add)
}

// readFile reads the database file of an embedded etcd that does not run.
func (t *target) readFile(file string, reader *stored.Reader) error {
	d, err := embedetcd.ReadDatabase(file)
	if err != nil {
		return fmt.Errorf("%w; name the folder of portico up with --data-dir, or an etcd of your own with --etcd-servers", err)
	}
	if d.StorageVersion != nil {
		t.etcdVersion = d.StorageVersion.String()
	}
	return embedetcd.ReadKeys(file, reader.Add)
}
