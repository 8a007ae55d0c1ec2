package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// MakeSecrets runs portico certs installation in a folder, for an installation with names that begin with name and for more
// hosts, and returns the files of each process as those of a Secret.
func MakeSecrets(t *testing.T, dir, name, server string, hosts ...string) Secrets {
	t.Helper()
	args := []string{"certs", "installation", "--dir=" + dir, "--server=" + server,
		"--gateway-host=" + name, "--core-host=*." + name + "-core", "--crd-host=*." + name + "-crd", "--etcd-host=*." + name + "-etcd"}
	processes := []string{"gateway", "core", "crd", "etcd"}
	for _, process := range processes {
		for _, host := range hosts {
			args = append(args, "--"+process+"-host="+host)
		}
	}
	if out, err := exec.CommandContext(t.Context(), e2e.Program(t, testtools.Portico), args...).CombinedOutput(); err != nil {
		t.Fatalf("portico certs installation: %v\n%s", err, out)
	}
	secrets := Secrets{}
	for _, process := range processes {
		data := map[string][]byte{}
		files, err := filepath.Glob(filepath.Join(dir, process, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if data[filepath.Base(file)], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		secrets[name+"-"+process] = data
	}
	return secrets
}
