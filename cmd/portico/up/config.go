package up

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico/backends/core/plugins"
	"portico/cmd/portico/config"
	"portico/cmd/portico/server"
	"portico/gateway/authorization"
)

// Flags that up sets for its children.
var (
	// ownFlags are those of each child that a file may not set for it: the installation would not
	// find its certificates, sockets and data.
	ownFlags = map[string][]string{
		"gateway": {"listen", "etcd-servers", "tls-cert-file", "tls-private-key-file", "client-ca-file", "requestheader-client-ca-file", "requestheader-allowed-names",
			"proxy-client-cert-file", "proxy-client-key-file", "service-account-key-file"},
		"core": {"listen", "etcd-servers", "gateway", "gateway-ca-file", "gateway-cert-file", "gateway-key-file", "service-account-signing-key-file"},
		"crd":  {"listen", "etcd-servers", "gateway", "gateway-ca-file", "gateway-cert-file", "gateway-key-file"},
		"etcd": {"data-dir", "socket-dir"},
	}
	// configurable are those that a file may set instead. Values of --backend are added.
	configurable = []string{"advertise-address", "root-ca-file", "state-dir", "service-account-issuer"}
	// together are flags of children that must agree, with the sections where a file sets them.
	together = map[string]string{
		"etcd-prefix":                "all",
		"feature-gates":              "all",
		"encryption-provider-config": "up or all",
		"encryption-provider-config-automatic-reload": "up or all",
		"service-account-issuer":                      "all",
		"service-cluster-ip-range":                    "up or all",
		"permit-port-sharing":                         "up or all",
	}
)

// readConfig reads the file of --config, which is valid, and refuses what would break the
// installation.
func (f *upFlags) readConfig() error {
	path := f.all.Lookup("config").Value.String()
	if path == "" {
		return nil
	}
	file, err := config.Load(path)
	if err != nil {
		return err
	}
	f.config = file
	f.all.VisitAll(func(flag *pflag.Flag) {
		// up has authorities of its own, unless it is given others.
		if strings.HasPrefix(flag.Name, "cluster-signing-") && strings.HasSuffix(flag.Name, "-file") && file.Has("core", flag.Name) {
			err = file.Errorf("core", flag.Name, "portico up passes this on; move it to section up")
		}
	})
	if err != nil {
		return err
	}
	for child, flags := range ownFlags {
		for _, flag := range flags {
			if file.Has(child, flag) {
				return file.Errorf(child, flag, "portico up sets this by itself; remove it")
			}
			if file.Has(config.All, flag) && f.all.Lookup(flag) == nil {
				return file.Errorf(config.All, flag, "portico up sets this by itself for %s; remove it", child)
			}
		}
		for flag, section := range together {
			if file.Has(child, flag) {
				return file.Errorf(child, flag, "processes of portico up must agree on this; move it to section %s", section)
			}
		}
	}
	for _, flag := range []string{"audit-log-path", "probe-listen"} {
		if values := file.Values(config.All, flag); len(values) > 0 && values[0] != "-" {
			return file.Errorf(config.All, flag, "several processes would use it; move it to section gateway")
		}
	}
	return nil
}

// passedOn returns the flags of up that a child has too and that were given to up, or that section up
// gives and the child's own section does not. The child reads section all by itself. Addresses and
// folders are not among them, and audit flags are for the gateway.
func (s *stack) passedOn(child *cobra.Command) (args []string) {
	name := child.Name()
	s.flags.all.Visit(func(f *pflag.Flag) {
		own := slices.Contains([]string{"listen", "etcd-servers", "data-dir"}, f.Name) || f.Name == "v" && name == "etcd" ||
			name != "gateway" && ofGateway(f.Name)
		section := config.SourceOf(f).Section
		if child.Flags().Lookup(f.Name) == nil || own || section == config.All || section == "up" && s.flags.config.Has(name, f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok && f.Value.Type() == "stringArray" {
			values = list.GetSlice()
		} else if ok {
			values = []string{strings.Join(list.GetSlice(), ",")}
		}
		for _, value := range values {
			args = append(args, "--"+f.Name+"="+value)
		}
	})
	return args
}

// valuesFor returns the values that a child gets of a flag of up.
func (f *upFlags) valuesFor(child, flag string) []string {
	of := f.all.Lookup(flag)
	given := of.Changed && config.SourceOf(of).Section == ""
	if !given && f.config.Has(child, flag) {
		return strings.Split(strings.Join(f.config.Values(child, flag), ","), ",")
	}
	if list, ok := of.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{of.Value.String()}
}

// warnings returns a line for each combination of flags, of a valid configuration, that leaves a gap.
func (f *upFlags) warnings() (lines []string) {
	one := func(flag string) string { return strings.Join(f.valuesFor("gateway", flag), ",") }
	authorizers := authorization.Config{
		ConfigFile: one("authorization-config"), WebhookConfigFile: one("authorization-webhook-config-file"), Modes: f.valuesFor("gateway", "authorization-mode"),
	}
	admission := plugins.Options{Enable: f.valuesFor("core", "enable-admission-plugins"), Disable: f.valuesFor("core", "disable-admission-plugins")}
	// The gateway reports what is wrong with its section of the file.
	if nodes, err := authorizers.AllowsNodes(); err == nil && nodes && !admission.Enables(plugins.NodeRestriction) {
		lines = append(lines, "the authorizer Node lets each node write the objects of all nodes, as the admission plugin NodeRestriction is off; "+
			"add --enable-admission-plugins="+plugins.NodeRestriction)
	}
	return lines
}

// ofGateway reports whether up passes a flag on to the gateway only. It stops the gateway first: no
// client waits for the others.
func ofGateway(flag string) bool {
	return strings.HasPrefix(flag, server.AuditPrefix) || slices.Contains(server.Network, flag) || flag == server.ShutdownDelay
}

// unlessConfigured leaves out the arguments of a child for which the file has values that it may have.
func (s *stack) unlessConfigured(child string, args []string) []string {
	return slices.DeleteFunc(args, func(arg string) bool {
		flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		return slices.Contains(configurable, flag) && (s.flags.config.Has(child, flag) || s.flags.config.Has(config.All, flag))
	})
}
