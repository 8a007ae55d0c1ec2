// Package version describes the running program: Portico's own version and the level of
// the Kubernetes API that it speaks.
//
// Runs in: gateway, core, crd.
package version

import (
	"encoding/json"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// The level of the Kubernetes API, which clients compare with their own.
const (
	apiMajor = "1"
	apiMinor = "37"
	apiPatch = "2"
	// oldestMinor is the oldest API level that this version is compatible with.
	oldestMinor = "36"
)

// Version returns Portico's own version, as the Go toolchain recorded it, in a form
// that is valid as the build part of a semantic version: "0.3.1", or "devel".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	return buildPart(info.Main.Version)
}

// buildPart converts a version to the build part of a semantic version, which may have
// letters, digits, dashes and dots.
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

// gitVersion returns the version that clients parse: the API level, with Portico's own
// version as its build part.
func gitVersion() string {
	return "v" + apiMajor + "." + apiMinor + "." + apiPatch + "+portico." + Version()
}

// Handler serves Info as JSON, at /version.
func Handler() http.Handler {
	body, _ := json.MarshalIndent(Info(), "", "  ") // never fails for strings
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // fails only if the client has gone
	})
}

// Info returns the API level, Portico's own version, and the commit and its date if the
// Go toolchain recorded them.
func Info() version.Info {
	v := version.Info{
		Major: apiMajor, Minor: apiMinor,
		EmulationMajor: apiMajor, EmulationMinor: apiMinor,
		MinCompatibilityMajor: apiMajor, MinCompatibilityMinor: oldestMinor,
		GitVersion: gitVersion(),
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
