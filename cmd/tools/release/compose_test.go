package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// composeFile is the file of deploy/container.
var composeFile = filepath.Join(root, "deploy", "container", "compose.yaml")

// composeProject reads the compose file as Docker does, which refuses unknown keys.
func composeProject(t *testing.T) *types.Project {
	t.Helper()
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  filepath.Dir(composeFile),
		ConfigFiles: []types.ConfigFile{{Filename: composeFile}},
		Environment: types.Mapping{"PORTICO_VERSION": "1.2.3"},
	}, loader.WithProfiles([]string{"backup"}))
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// once reports whether a service runs to its end.
func once(s types.ServiceConfig) bool { return s.Restart == types.RestartPolicyNo }

// No service may do more than it must: no root, no capabilities, no writing outside volumes,
// and no key of another service but for certs, which makes them, and backup. What serves has a health check, and only gateways have ports
// on the machine, of loopback.
func TestComposeGrantsLittle(t *testing.T) {
	t.Parallel()
	project := composeProject(t)
	if len(project.Services) != 11 {
		t.Errorf("services %v", project.ServiceNames())
	}
	images := []string{"portico:1.2.3"}
	for _, s := range samples {
		images = append(images, s.name+":1.2.3")
	}
	for name, s := range project.Services {
		if s.User != "65532:65532" || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.Privileged ||
			len(s.CapAdd) > 0 || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s is not confined: %+v", name, s)
		}
		if !slices.Contains(images, s.Image) {
			t.Errorf("%s runs %s, which a release does not have", name, s.Image)
		}
		if (s.HealthCheck == nil) != once(s) {
			t.Errorf("%s: health check %+v", name, s.HealthCheck)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(name, "gateway-") || !net.ParseIP(p.HostIP).IsLoopback() {
				t.Errorf("%s has port %+v", name, p)
			}
		}
		for _, v := range s.Volumes {
			if _, ok := project.Volumes[v.Source]; v.Type != types.VolumeTypeVolume || !ok {
				t.Errorf("%s has volume %+v", name, v)
			}
			if v.Source == "pki" && name != "certs" && (!v.ReadOnly || name != "backup" && (v.Volume == nil || v.Volume.Subpath == "" || v.Volume.Subpath == "authorities")) {
				t.Errorf("%s can read or write keys of others: %+v", name, v)
			}
		}
	}
}

// A compose file without a version of the images is refused with what to do.
func TestComposeNeedsVersion(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	_, err = loader.LoadWithContext(t.Context(), types.ConfigDetails{ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: data}}})
	if err == nil || !strings.Contains(err.Error(), "set it to the version of the images") {
		t.Error(err)
	}
}
