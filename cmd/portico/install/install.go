// Package install is the commands portico install and portico uninstall: units of systemd, and the
// user, folders and configuration that they need.
//
// Decisions:
//
//   - The units are the files of the folder units, which deploy/systemd shows to readers.
//   - A written file begins with a checksum of the rest. By that an administrator's change is
//     noticed, and a later version replaces only files that are unchanged. The configuration file
//     is written once and never again.
//   - With --root nothing but files is written, for images and packages: systemd makes the user and
//     the folders when the machine starts.
//
// Runs in: portico install, portico uninstall.
package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"portico/cmd/portico/cli"
)

// program is where the units expect the program.
const program = "/usr/local/bin/portico"

const installLong = `Write systemd units, the user portico, its folders and a configuration file. Nothing is started. Run it again after an
upgrade: unchanged files are written anew, changed ones are kept.

The role is what this machine runs: up is a whole installation; gateway, core and crd are single processes of an installation
on several machines. Each has a unit portico.service, portico-gateway.service, portico-core.service or portico-crd.service.
For the roles gateway, core and crd put the folder of the process, made by "portico certs installation", into
/etc/portico/pki, and name etcd and the other processes in /etc/portico/portico.yaml.`

const installExample = `  # what it would do
  portico install --systemd --dry-run

  # a whole installation on this machine
  sudo portico install --systemd
  sudo systemctl enable --now portico

  # only the gateway
  sudo portico install --systemd --role=gateway`

// options are the flags of both commands.
type options struct {
	systemd, dryRun, force bool
	role, root             string
}

func (o *options) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.systemd, "systemd", false, "for systemd, the only service manager so far. Required")
	fs.StringVar(&o.role, "role", "up", "`process` of this machine: up, gateway, core or crd")
	fs.StringVar(&o.root, "root", "/", "`folder` of another system, as for an image; only files are written")
	fs.BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and do nothing")
	fs.BoolVar(&o.force, "force", false, "also replace or remove units that an administrator changed")
}

// check refuses what cannot succeed.
func (o *options) check(uid int) error {
	switch {
	case !o.systemd:
		return errors.New("--systemd is missing; it is the only service manager so far")
	case units[o.role] == nil:
		return fmt.Errorf("--role=%s: must be up, gateway, core or crd", o.role)
	case !filepath.IsAbs(o.root):
		return fmt.Errorf("--root=%s: must be an absolute path", o.root)
	case !o.dryRun && o.root == "/" && uid != 0:
		return errors.New("it writes below /etc and needs root; run it with sudo, or see with --dry-run what it would do")
	}
	return nil
}

// New returns the command portico install.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "install",
		Short:   "Write systemd units, with their user, folders and configuration",
		Long:    installLong,
		Example: installExample,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(os.Geteuid()); err != nil {
				return err
			}
			return o.install(&report{to: cmd.OutOrStdout(), dry: o.dryRun})
		},
	}
	o.add(cmd)
	return cmd
}

// NewUninstall returns the command portico uninstall.
func NewUninstall() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove systemd units",
		Long: "Remove the systemd units of a role, after systemctl disable --now. Data, configuration, keys and the user stay:\n" +
			"/var/lib/portico, /etc/portico.",
		Example: "  sudo systemctl disable --now portico.socket portico.service\n  sudo portico uninstall --systemd",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(os.Geteuid()); err != nil {
				return err
			}
			return o.uninstall(&report{to: cmd.OutOrStdout(), dry: o.dryRun})
		},
	}
	o.add(cmd)
	return cmd
}

// install writes the files, makes the user, and tells systemd.
func (o *options) install(r *report) error {
	if info, err := os.Stat(filepath.Join(o.root, program)); !o.dryRun && (err != nil || info.Mode()&0o111 == 0) {
		return fmt.Errorf("there is no program %s, which the units start; copy this one there: install -m 0755 portico %[1]s", filepath.Join(o.root, program))
	}
	for _, f := range append(units[o.role], shared...) {
		if err := o.write(r, f); err != nil {
			return err
		}
	}
	config := configuration[o.role]
	if err := o.writeOnce(r, config); err != nil {
		return err
	}
	if o.root != "/" {
		return nil
	}
	if err := o.runAll(r); err != nil {
		return err
	}
	r.say("next", "systemctl enable --now %s, after a look at %s", strings.TrimSuffix(filepath.Base(units[o.role][0].path), ".service"), config.path)
	return nil
}

// uninstall removes the units of the role.
func (o *options) uninstall(r *report) error {
	if o.root == "/" && !o.dryRun {
		if err := checkStopped(units[o.role]); err != nil {
			return err
		}
	}
	for _, f := range units[o.role] {
		path := filepath.Join(o.root, f.path)
		have, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.say("absent", "%s", f.path)
			continue
		case err != nil:
			return err
		case !pristine(have) && !o.force:
			r.say("kept", "%s: an administrator changed it; --force removes it", f.path)
			continue
		}
		r.did("removed", "remove", f.path)
		if o.dryRun {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if o.root != "/" {
		return nil
	}
	return o.run(r, systemctlReload)
}
