package manifests

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
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

// file returns the content of a file of the container; false if it is in no ConfigMap and no Secret.
func (s *Set) file(w *Workload, file string) ([]byte, bool) {
	volume, name := w.volumeAt(file)
	switch {
	case volume == nil:
		return nil, false
	case volume.ConfigMap != nil:
		data, ok := s.configs[volume.ConfigMap.Name][name]
		return []byte(data), ok
	case volume.Secret != nil:
		return s.key(volume.Secret.SecretName, volume.Secret.Items, name)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			if data, ok := s.key(source.Secret.Name, source.Secret.Items, name); ok {
				return data, true
			}
		}
	}
	return nil, false
}

// key returns the content of a file that a Secret has, under the name that items give its key.
func (s *Set) key(secret string, items []corev1.KeyToPath, name string) ([]byte, bool) {
	if items != nil {
		i := slices.IndexFunc(items, func(item corev1.KeyToPath) bool { return item.Path == name })
		if i < 0 {
			return nil, false
		}
		name = items[i].Key
	}
	data, ok := s.secrets[secret][name]
	return data, ok
}

// checkFiles checks that the volumes have the files that flags name, and that each Secret of a volume exists.
func (s *Set) checkFiles(w *Workload, report func(string, ...any)) {
	for _, value := range w.values() {
		if !path.IsAbs(value) {
			continue
		}
		volume, _ := w.volumeAt(value)
		if volume != nil && (volume.EmptyDir != nil || volume.PersistentVolumeClaim != nil) {
			continue
		}
		if _, ok := s.file(w, value); !ok {
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
