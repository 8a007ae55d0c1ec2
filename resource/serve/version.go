package serve

import (
	"encoding/json"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// The level of the Kubernetes API that Portico speaks. Clients compare it with
// their own.
const (
	apiMajor = "1"
	apiMinor = "37"
	apiPatch = "2"
	// oldestMinor is the oldest API level whose behaviour is kept.
	oldestMinor = "36"
)

// Version returns Portico's own version, as the Go toolchain recorded it, fit to
// be the build part of a semantic version: "0.3.1", or "devel".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	return buildPart(info.Main.Version)
}

// buildPart makes a version fit to stand behind the plus of another one, where
// semantic versioning permits letters, digits, dashes and dots.
func buildPart(v string) string {
	v = strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.':
			return c
		case c == '+':
			return '.'
		}
		return -1
	}, strings.TrimPrefix(v, "v"))
	if v = strings.Trim(v, ".-"); v == "" {
		return "devel"
	}
	return v
}

// GitVersion returns the version that clients parse: the API level, and
// Portico's own version as its build.
func GitVersion() string {
	return "v" + apiMajor + "." + apiMinor + "." + apiPatch + "+portico." + Version()
}

// VersionHandler serves /version (contract 1.4).
func VersionHandler() http.Handler {
	body, err := json.MarshalIndent(VersionInfo(), "", "  ")
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a client that has gone cannot be told
	})
}

// VersionInfo returns what /version says: the API level, Portico's own version,
// and the commit and its date where the Go toolchain recorded them.
func VersionInfo() version.Info {
	v := version.Info{
		Major: apiMajor, Minor: apiMinor,
		EmulationMajor: apiMajor, EmulationMinor: apiMinor,
		MinCompatibilityMajor: apiMajor, MinCompatibilityMinor: oldestMinor,
		GitVersion: GitVersion(),
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.GitCommit = setting.Value
		case "vcs.time":
			v.BuildDate = setting.Value
		case "vcs.modified":
			v.GitTreeState = "clean"
			if setting.Value == "true" {
				v.GitTreeState = "dirty"
			}
		}
	}
	return v
}
