//go:build boot

package pages

import (
	"fmt"
	"strings"
	"testing"
)

// followSystemd follows deploy/systemd/README.md.
func (m *machine) followSystemd(t *testing.T) {
	defer func() {
		if t.Failed() {
			out, err := m.try(t, "sudo journalctl --unit='portico*' --lines=200")
			t.Log(out, err)
		}
	}()
	const kubectl = `kubectl --kubeconfig="$HOME/.kube/portico" get apiservices`
	var pid string // of the unit before the command
	m.follow(t, "deploy/systemd/README.md", map[string]step{
		"systemctl status portico": {shows: `Status: "serving"`},
		kubectl: {shows: "v1.apps", after: func(t *testing.T) {
			m.confined(t)
			m.survives(t, "KILL")
		}},
		"sudo journalctl --unit=portico --follow": {
			instead: func(t *testing.T, line string) {
				if out := m.run(t, "timeout 3 "+line+" || [ $? = 124 ]"); !strings.Contains(out, "gateway is ready again") {
					t.Error(out)
				}
			},
		},
		"sudo portico logs --data-dir=/var/lib/portico":          {shows: "msg=serving server=gateway"},
		"sudo portico config validate /etc/portico/portico.yaml": {shows: "valid"},
		"sudo systemctl reload portico": {
			before: func(t *testing.T) { pid = m.show(t, "MainPID") },
			after: func(t *testing.T) {
				if now := m.show(t, "MainPID"); now != pid {
					t.Errorf("after the reload the process is %s, was %s", now, pid)
				}
			},
		},
		"sudo systemctl stop portico": {before: func(t *testing.T) {
			m.run(t, `sudo sed --in-place 's/listen:.*/listen: ["systemd:portico"]/' /etc/portico/portico.yaml`)
		}},
		"sudo systemctl enable --now portico.socket": {after: func(t *testing.T) {
			// The first connection starts the service, and waits.
			m.run(t, strings.Replace(kubectl, "get", "--server=https://127.0.0.1:443 get", 1))
		}},
		"sudo systemctl edit portico": {
			before:  func(t *testing.T) { m.editor(t, `/^### Anything/a [Service]\nWatchdogSec=5s`) },
			instead: m.atTerminal,
			after: func(t *testing.T) {
				m.run(t, "sudo systemctl restart portico")
				m.survives(t, "STOP")
				m.run(t, "sudo journalctl --unit=portico | grep 'Watchdog timeout (limit 5s)'")
			},
		},
		"sudo systemctl disable --now portico.socket portico.service": {before: func(t *testing.T) {
			m.fails(t, "sudo portico uninstall --systemd", "systemctl disable --now portico.socket portico.service")
		}},
		"sudo portico uninstall --systemd": {after: func(t *testing.T) {
			m.run(t, "! pgrep --uid portico && ! systemctl cat portico && sudo ls /var/lib/portico/etcd /etc/portico/portico.yaml")
		}},
		"sudo portico install --systemd --role=gateway": {before: m.prepareProcesses},
		"sudo systemctl enable --now portico-gateway":   {after: m.credentials},
		"sudo systemctl edit --full portico-gateway": {
			before:  func(t *testing.T) { m.editor(t, "/etcd-/d") },
			instead: m.atTerminal,
			after:   m.withoutCertificates,
		},
		"systemd-analyze security portico": {
			before: func(t *testing.T) {
				m.run(t, "sudo rm /etc/portico/portico.yaml && sudo portico install --systemd")
				if out := m.run(t, "sudo portico install --systemd"); strings.Contains(out, "wrote") {
					t.Errorf("a second time: %s", out)
				}
				m.run(t, "sudo systemctl enable --now portico")
			},
			shows: "Overall exposure level for portico.service: 1.",
			after: func(t *testing.T) { m.run(t, "sudo systemctl disable --now portico") },
		},
	})
}

// show returns a property of the unit portico.
func (m *machine) show(t *testing.T, property string) string {
	t.Helper()
	return m.run(t, "systemctl show --value --property="+property+" portico")
}

// editor makes what systemctl edit calls apply a script of sed.
func (m *machine) editor(t *testing.T, script string) {
	t.Helper()
	m.write(t, "/usr/local/bin/editor", "#!/bin/sh\nfor file; do :; done # the last argument\nexec sed --in-place '"+script+"' \"$file\"\n", 0o755)
}

// atTerminal runs a line that wants a terminal.
func (m *machine) atTerminal(t *testing.T, line string) {
	t.Helper()
	m.run(t, fmt.Sprintf("script --quiet --return --command '%s' /dev/null", line))
}

// confined checks that the processes of the unit have no rights, and write nowhere but in their folders.
func (m *machine) confined(t *testing.T) {
	t.Helper()
	pids := strings.Fields(m.run(t, "pgrep --uid portico"))
	if len(pids) != 5 {
		t.Errorf("%d processes of the user portico, want 5", len(pids))
	}
	m.run(t, "sudo mknod /dev/device c 1 3")
	for _, pid := range pids {
		status := m.run(t, "cat /proc/"+pid+"/status")
		for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Umask:\t0077"} {
			if !strings.Contains(status, want) {
				t.Errorf("process %s has not %q:\n%s", pid, want, status)
			}
		}
		within := "sudo nsenter --mount --target=" + pid + " "
		for _, path := range []string{"/etc", "/usr", "/var"} {
			m.fails(t, within+"touch "+path+"/file", "Read-only file system")
		}
		m.fails(t, within+"ls /home/newcomer", "No such file")
		m.fails(t, within+"ls /dev/device", "No such file")
		m.run(t, within+"sh -c 'touch /var/lib/portico/file && rm /var/lib/portico/file'")
	}
}

// survives sends a signal to the unit's first process, and then to the gateway that it started, and waits each time until
// another gateway serves.
func (m *machine) survives(t *testing.T, signal string) {
	t.Helper()
	for _, process := range []string{"up", "gateway"} {
		pid := m.run(t, "pgrep --full --exact '/usr/local/bin/portico gateway .*'")
		m.run(t, "sudo pkill --signal="+signal+" --full --exact '/usr/local/bin/portico "+process+" .*'")
		m.await(t, "pgrep --full --exact '/usr/local/bin/portico gateway .*' | grep --invert-match "+pid, "")
		m.await(t, `kubectl --kubeconfig="$HOME/.kube/portico" --server="$(sudo grep --only-matching 'https:.*' /var/lib/portico/kubeconfig)" get --raw /readyz`, "ok")
		m.await(t, "systemctl status portico", `Status: "serving"`)
		m.await(t, "systemctl is-active portico", "active") // systemd watches a service that has started
	}
}

// prepareProcesses makes what the units of single processes need: certificates, an etcd, and no other configuration.
func (m *machine) prepareProcesses(t *testing.T) {
	m.run(t, "sudo rm /etc/portico/portico.yaml")
	m.run(t, "portico certs installation --dir=pki --server=https://portico.example.com:6443 --gateway-host=portico.example.com"+
		" --core-host=core-0.example.com --crd-host=crd-0.example.com --etcd-host=etcd-0.example.com")
	m.run(t, "sudo cp --recursive pki/gateway pki/core pki/crd /etc/portico/pki && sudo chown --recursive root: /etc/portico/pki")
	m.run(t, "sudo systemd-run --unit=etcd --service-type=notify etcd --data-dir=/var/lib/etcd --advertise-client-urls=https://etcd-0.example.com:2379"+
		" --listen-client-urls=https://127.0.0.1:2379 --client-cert-auth --trusted-ca-file=$HOME/pki/etcd/etcd-client-ca.crt"+
		" --cert-file=$HOME/pki/etcd/etcd.crt --key-file=$HOME/pki/etcd/etcd.key")
}

// credentials starts core and crd beside the gateway, and checks that they serve with keys that their user cannot read
// in any other way.
func (m *machine) credentials(t *testing.T) {
	for _, role := range []string{"core", "crd"} {
		m.run(t, "sudo portico install --systemd --role="+role+" && sudo systemctl enable --now portico-"+role)
	}
	m.await(t, "kubectl --kubeconfig=pki/admin/kubeconfig get customresourcedefinitions,configmaps --all-namespaces", "kube-root-ca.crt")
	for role, files := range map[string]int{"gateway": 11, "core": 10, "crd": 9} {
		folder := "/run/credentials/portico-" + role + ".service"
		if have := strings.Fields(m.run(t, "sudo ls "+folder)); len(have) != files {
			t.Errorf("%s has %q", folder, have)
		}
		m.fails(t, "ls "+folder, "Permission denied")
		m.fails(t, "sudo --user=portico cat /etc/portico/pki/"+role+"/"+role+".key", "Permission denied")
	}
	m.confinedCredentials(t)
}

// confinedCredentials checks that the gateway sees its own keys, and those of no other unit.
func (m *machine) confinedCredentials(t *testing.T) {
	t.Helper()
	pid := m.run(t, "systemctl show --value --property=MainPID portico-gateway")
	within := "sudo nsenter --mount --target=" + pid + " --setuid=$(id --user portico) --setgid=$(id --group portico) "
	m.run(t, within+"cat /run/credentials/portico-gateway.service/gateway.key")
	m.fails(t, within+"cat /run/credentials/portico-core.service/core.key", "core.key")
}

// withoutCertificates starts the gateway of which the unit was edited, with an etcd that has no certificates.
func (m *machine) withoutCertificates(t *testing.T) {
	m.run(t, "sudo systemctl disable --now portico-core portico-crd && sudo systemctl stop portico-gateway etcd")
	m.run(t, "sudo systemd-run --unit=etcd --service-type=notify etcd --data-dir=/var/lib/etcd-2")
	m.run(t, "sudo sed --in-place s,https://etcd-0,http://etcd-0, /etc/portico/portico.yaml && sudo systemctl start portico-gateway")
	m.run(t, "kubectl --kubeconfig=pki/admin/kubeconfig get apiservices")
	if out := m.run(t, "sudo portico install --systemd --role=gateway"); !strings.Contains(out, "kept") {
		t.Errorf("the edited unit: %s", out)
	}
	m.run(t, "sudo systemctl disable --now portico-gateway && sudo systemctl stop etcd")
}
