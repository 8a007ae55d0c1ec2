package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"portico/cmd/internal/supervise"
	"portico/cmd/portico/cli"
)

// otherVariables are the variables that belong to no flag: for the lifeline and the restarts of children, and for
// deploy/container.
var otherVariables = []string{supervise.LifelineEnv, supervise.RestartsEnv, variablePrefix + "VERSION"}

const (
	variablePrefix = "PORTICO_"
	// testPrefix begins the names of variables of tests.
	testPrefix = variablePrefix + "TEST_"
)

// serviceLink matches the variables that kubelets make of a Service with a name that begins with portico, unless the pod
// has enableServiceLinks: false.
var serviceLink = regexp.MustCompile(`^PORTICO_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// checkVariables refuses variables with names that begin with variablePrefix and that nothing reads.
func checkVariables(all commands, environ []string) error {
	known := slices.Clone(otherVariables)
	for _, process := range all.of {
		process.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, Variable(f.Name)) })
	}
	for _, setting := range environ {
		name, value, _ := strings.Cut(setting, "=")
		if value == "" || !strings.HasPrefix(name, variablePrefix) || strings.HasPrefix(name, testPrefix) || slices.Contains(known, name) || serviceLink.MatchString(name) {
			continue
		}
		if like := cli.Nearest(name, known); like != "" {
			return fmt.Errorf("%s: no process has the flag of this variable; did you mean %s?", name, like)
		}
		return fmt.Errorf("%s: no process has the flag of this variable; unset it (portico config view lists the flags)", name)
	}
	return nil
}
