package manifests

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// settings reads the arguments of a container, and the sections of the file of --config that are for its process.
// Variables of the pod are replaced by the values of its first replica.
func (s *Set) settings(w *Workload) (map[string][]string, error) {
	out := map[string][]string{}
	for _, arg := range w.Container.Args {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !ok || !strings.HasPrefix(arg, "--") {
			continue // the subcommand, or a switch
		}
		out[name] = append(out[name], strings.ReplaceAll(value, "$(POD_NAME)", w.Name+"-0"))
	}
	for _, file := range out["config"] {
		data, ok := s.file(w, file)
		if !ok {
			return nil, fmt.Errorf("no volume has the file %s", file)
		}
		var config map[string]any
		if err := yaml.UnmarshalStrict(data, &config); err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		for _, section := range []string{"all", w.Component} {
			flags, _ := config[section].(map[string]any)
			for name, value := range flags {
				list, isList := value.([]any)
				if !isList {
					list = []any{value}
				}
				out[name] = nil
				for _, v := range list {
					out[name] = append(out[name], fmt.Sprint(v))
				}
			}
		}
	}
	return out, nil
}

// setting returns the value of a flag that is given once; "" without it.
func (w *Workload) setting(name string) string { return strings.Join(w.Settings[name], ",") }

// values returns the values of all flags.
func (w *Workload) values() (all []string) {
	for _, values := range w.Settings {
		all = append(all, values...)
	}
	slices.Sort(all)
	return all
}

// portOf returns the number of a port of the container; 0 for one that it has not.
func portOf(w *Workload, port intstr.IntOrString) int {
	for _, p := range w.Container.Ports {
		if p.Name == port.StrVal || port.Type == intstr.Int && p.ContainerPort == port.IntVal {
			return int(p.ContainerPort)
		}
	}
	return 0
}

// listens matches an address that a process listens on.
var listens = regexp.MustCompile(`(?:^|://)0\.0\.0\.0:(\d+)$`)

// checkPorts checks that the ports of the container are those that its process listens on.
func checkPorts(w *Workload, report func(string, ...any)) {
	var listening, declared []int
	for _, value := range w.values() {
		if m := listens.FindStringSubmatch(value); m != nil {
			port, _ := strconv.Atoi(m[1])
			listening = append(listening, port)
		}
	}
	for _, p := range w.Container.Ports {
		declared = append(declared, int(p.ContainerPort))
	}
	slices.Sort(listening)
	slices.Sort(declared)
	if !slices.Equal(listening, declared) {
		report("its process listens on the ports %v, its container has %v", listening, declared)
	}
}

// volumeAt returns the volume that a path of the container is in, and the rest of the path.
func (w *Workload) volumeAt(file string) (volume *corev1.Volume, name string) {
	for _, mount := range w.Container.VolumeMounts {
		if rest, ok := strings.CutPrefix(file, mount.MountPath); ok {
			for i, v := range w.Template.Spec.Volumes {
				if v.Name == mount.Name {
					return &w.Template.Spec.Volumes[i], strings.TrimPrefix(rest, "/")
				}
			}
		}
	}
	return nil, ""
}

// files returns the files of a volume; nil for one that a process writes to.
func (s *Set) files(volume *corev1.Volume) map[string][]byte {
	files := map[string][]byte{}
	add := func(secret string, items []corev1.KeyToPath) {
		if items == nil {
			maps.Copy(files, s.secrets[secret])
		}
		for _, item := range items {
			if data, ok := s.secrets[secret][item.Key]; ok {
				files[item.Path] = data
			}
		}
	}
	switch {
	case volume.ConfigMap != nil:
		for name, text := range s.configs[volume.ConfigMap.Name] {
			files[name] = []byte(text)
		}
	case volume.Secret != nil:
		add(volume.Secret.SecretName, volume.Secret.Items)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			add(source.Secret.Name, source.Secret.Items)
		}
	default:
		return nil
	}
	return files
}

// file returns the content of a file of the container; false if it is in no ConfigMap and no Secret.
func (s *Set) file(w *Workload, file string) ([]byte, bool) {
	volume, name := w.volumeAt(file)
	if volume == nil {
		return nil, false
	}
	data, ok := s.files(volume)[name]
	return data, ok
}

// checkFiles checks that the volumes have the files that flags name, and that each Secret of a volume exists.
func (s *Set) checkFiles(w *Workload, report func(string, ...any)) {
	for _, value := range w.values() {
		if !path.IsAbs(value) {
			continue
		}
		volume, name := w.volumeAt(value)
		if volume == nil || s.files(volume) != nil && s.files(volume)[name] == nil {
			report("no volume has the file %s", value)
		}
	}
	for _, volume := range w.Template.Spec.Volumes {
		if volume.Secret != nil && s.secrets[volume.Secret.SecretName] == nil {
			report("there is no Secret %s", volume.Secret.SecretName)
		}
	}
}

// certificate returns the first certificate of the file that a flag names.
func (s *Set) certificate(w *Workload, flag string) (*x509.Certificate, error) {
	data, _ := s.file(w, w.setting(flag))
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("--%s=%s has no certificate", flag, w.setting(flag))
	}
	return x509.ParseCertificate(block.Bytes)
}

// checkUsers checks the users of client certificates.
func (s *Set) checkUsers(w *Workload, report func(string, ...any)) {
	for flag, user := range map[string]string{
		"gateway-cert-file": "system:portico:" + w.Component, "proxy-client-cert-file": w.setting("requestheader-allowed-names"),
	} {
		if w.setting(flag) == "" {
			continue
		}
		if c, err := s.certificate(w, flag); err != nil {
			report("%v", err)
		} else if c.Subject.CommonName != user {
			report("--%s is of the user %s, not %s", flag, c.Subject.CommonName, user)
		}
	}
}

// CheckProgram checks that the program takes the arguments and the configuration of a process of Portico.
func (s *Set) CheckProgram(t *testing.T, w *Workload) {
	t.Helper()
	config, ok := s.file(w, w.setting("config"))
	if !ok {
		t.Errorf("%s has no configuration", w.Name)
	}
	file := filepath.Join(t.TempDir(), "portico.yaml")
	e2e.WriteFile(t, file, string(config))
	for _, args := range [][]string{{"config", "validate", file}, append(slices.Clone(w.Container.Args), "--help")} {
		if out, err := exec.CommandContext(t.Context(), e2e.Program(t, testtools.Portico), args...).CombinedOutput(); err != nil {
			t.Errorf("%s: portico %s: %v\n%s", w.Name, strings.Join(args, " "), err, out)
		}
	}
}
