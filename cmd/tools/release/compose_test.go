package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// leastStop is the time to stop of a process: that of its requests in flight (serve.DefaultShutdownTimeout), and of what
// follows.
const leastStop = 70 * time.Second

// Each docker run of the README that stays gives portico up the time of its four processes, and is started again.
func TestDockerRunHasTimeToStop(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(filepath.Dir(composeFile), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "docker run ") || !strings.Contains(line, "--detach") {
			continue
		}
		found++
		_, after, _ := strings.Cut(line, "--stop-timeout=")
		seconds, err := strconv.Atoi(strings.Fields(after + " ")[0])
		if err != nil || time.Duration(seconds)*time.Second < 4*leastStop || !strings.Contains(line, "--restart=unless-stopped") {
			t.Errorf("%v: %s", err, line)
		}
	}
	if found == 0 {
		t.Error("there is no docker run --detach")
	}
}

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
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < leastStop {
			t.Errorf("%s has %v to stop: requests in flight are cut", name, s.StopGracePeriod)
		}
		if s.Logging == nil || s.Logging.Options["max-size"] == "" {
			t.Errorf("%s: the log is not rotated: %+v", name, s.Logging)
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
