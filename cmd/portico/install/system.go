package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// call is a program that makes what a file describes.
type call struct {
	args []string
	// instead is called on systems without the program; nil: nothing is.
	instead [][]string
}

var systemctlReload = call{args: []string{"systemctl", "daemon-reload"}}

// calls make the user and its group, and the folders, and tell systemd of the units.
var calls = []call{
	{args: []string{"systemd-sysusers", "/etc/sysusers.d/portico.conf"}, instead: [][]string{
		{"useradd", "--system", "--user-group", "--home-dir=/var/lib/portico", "--shell=/usr/sbin/nologin", "portico"},
	}},
	{args: []string{"systemd-tmpfiles", "--create", "/etc/tmpfiles.d/portico.conf"}, instead: [][]string{
		{"install", "-d", "-m", "0700", "/etc/portico/pki"},
		{"chown", "root:portico", configurationPath},
	}},
	systemctlReload,
}

func (o *options) runAll(r *report) error {
	for _, c := range calls {
		if err := o.run(r, c); err != nil {
			return err
		}
	}
	return nil
}

// run runs a call. systemctl is left out where systemd does not run, as in a container.
func (o *options) run(r *report, c call) error {
	if c.args[0] == "systemctl" {
		if _, err := os.Stat("/run/systemd/system"); err != nil {
			r.say("left out", "%s: systemd does not run here", strings.Join(c.args, " "))
			return nil
		}
	}
	lines := [][]string{c.args}
	if _, err := exec.LookPath(c.args[0]); err != nil && c.instead != nil {
		lines = c.instead
		if _, err := exec.Command("id", "portico").Output(); err == nil && lines[0][0] == "useradd" {
			return nil
		}
	}
	for _, args := range lines {
		r.did("ran", "run", strings.Join(args, " "))
		if o.dryRun {
			continue
		}
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// checkStopped refuses units that are active: without their files they would go on. A socket is named
// before its service, which it would start again.
func checkStopped(files []file) error {
	var names []string
	for _, f := range slices.Backward(files) {
		names = append(names, filepath.Base(f.path))
	}
	if exec.Command("systemctl", append([]string{"is-active", "--quiet"}, names...)...).Run() == nil {
		return fmt.Errorf("what is to be removed runs; stop it first: systemctl disable --now %s", strings.Join(names, " "))
	}
	return nil
}
