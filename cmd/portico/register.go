package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"portico/apiservice"
	"portico/apiservice/backend"
)

const registerLong = `Register a server behind the gateway, or change how it is registered.

This makes a Backend of the given name, and waits until the gateway can reach it and it serves what is asked for:
  --group G              whatever versions of G the server says it serves, and more groups if --group is repeated
  --group G --version V  these versions only, known to the gateway whatever the server says
  --all-groups           whatever it says it serves
  --rest                 it has no Kubernetes discovery, but an OpenAPI 3 document: that becomes --group G --version V
A Backend that is there gets the endpoints, the trust and the groups of this command. Of its policy (balancing, weights,
health checks, timeouts, retries, limits), its priorities and --replace it gets what the command says; the rest stays as it is.
Versions that an earlier command named, and this one does not, are left to the gateway, like others. There is more to a
policy than these flags: kubectl explain backend.spec tells, kubectl edit backend NAME changes it, and --dry-run=client
-o yaml prints a Backend to begin with.

A "portico core" or "portico crd" on another machine is registered like any other server. Give it
--health-path='/readyz?exclude=etcd&exclude=etcd-readiness': it is taken out before it stops, and not while etcd is away,
when it is not ready but answers from memory.`

const registerExample = `  # an API server of three processes, whose certificates are of an authority of its own
  portico register billing --url=https://10.0.0.1:8443 --url=https://10.0.0.2:8443 --url=https://10.0.0.3:8443 \
    --ca-file=billing-ca.crt --server-name=billing.internal --group=billing.example.com

  # a REST server on this machine, as pets.example.com/v1
  portico register pets --url=http://127.0.0.1:8080 --rest --group=pets.example.com --version=v1

  # a tenth of the requests to a new release, each user always to the same one
  portico register billing --url=https://10.0.0.1:8443=90 --url=https://10.0.0.2:8443=10 --balance=ConsistentHash \
    --ca-file=billing-ca.crt --all-groups

  # a Backend to edit and to apply
  portico register billing --url=https://10.0.0.1:8443 --all-groups --dry-run=client -o yaml > billing.yaml`

// registerFlags are the flags of `portico register`.
type registerFlags struct {
	client clientFlags
	want   registration
	wait   time.Duration
	dryRun string
	output string
}

func newRegister() *cobra.Command {
	var f registerFlags
	cmd := &cobra.Command{
		Use:     "register NAME",
		Short:   "Register a server behind the gateway, by its URLs",
		Long:    registerLong,
		Example: registerExample,
		Args:    oneName("register", "--url=https://host:port --all-groups"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.want.name = args[0]
			if err := f.check(cmd.Flags().Changed("output")); err != nil {
				return err
			}
			if err := f.want.complete(); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.want.add(fs)
	fs.DurationVar(&f.wait, "wait", 30*time.Second, "most `time` to wait until the server is available; 0 is not at all")
	fs.StringVar(&f.dryRun, "dry-run", dryRunNone, "`what` to do in place of writing: none writes, client prints the objects and sends nothing")
	fs.Lookup("dry-run").NoOptDefVal = dryRunClient
	fs.StringVarP(&f.output, "output", "o", "yaml", "`form` that --dry-run prints: yaml or json")
	f.client.add(cmd)
	return cmd
}

func (f *registerFlags) run(ctx context.Context, out, progress io.Writer) error {
	if f.dryRun == dryRunClient {
		return f.want.print(out, f.output)
	}
	gateway, err := f.client.open()
	if err != nil {
		return err
	}
	if err := gateway.register(ctx, &f.want, out); err != nil {
		return err
	}
	if f.wait <= 0 {
		return nil
	}
	w := registerWait{gateway: gateway, want: &f.want, out: out, progress: progress}
	return w.run(ctx, f.wait)
}

// Values of --dry-run, as kubectl has them.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
)

func (f *registerFlags) check(saysForm bool) error {
	switch {
	case f.wait < 0:
		return fmt.Errorf("--wait=%v: it must not be negative; 0 is not at all", f.wait)
	case saysForm && f.dryRun == dryRunNone:
		return fmt.Errorf("-o %s is the form that --dry-run=client prints; leave it out, or see what was written: portico backends NAME -o %[1]s", f.output)
	case f.dryRun != dryRunNone && f.dryRun != dryRunClient:
		return fmt.Errorf("--dry-run %q: it must be none or client; to have the gateway judge, print the objects and use kubectl apply --dry-run=server -f -", f.dryRun)
	case f.output != "yaml" && f.output != "json":
		return fmt.Errorf("--output %q: it must be yaml or json", f.output)
	}
	return nil
}

// print prints what would be written. Several objects are documents of YAML, or
// lines of JSON.
func (r *registration) print(w io.Writer, form string) error {
	b := r.backend(&backend.Backend{})
	if errs := backend.Validate(b); len(errs) > 0 {
		return fmt.Errorf("the gateway would refuse this: %w", errs.ToAggregate())
	}
	objects := []any{b}
	for _, a := range r.apiServices() {
		if errs := apiservice.Validate(a); len(errs) > 0 {
			return fmt.Errorf("the gateway would refuse this: %w", errs.ToAggregate())
		}
		objects = append(objects, a)
	}
	for i, o := range objects {
		marshal := func(v any) ([]byte, error) { return yaml.Marshal(v) }
		if form == "json" {
			marshal = func(v any) ([]byte, error) {
				text, err := json.Marshal(v)
				return append(text, '\n'), err
			}
		}
		text, err := marshal(withoutEmpty(o))
		if err != nil {
			return fmt.Errorf("encode object: %w", err)
		}
		separator := ""
		if i > 0 && form == "yaml" {
			separator = "---\n"
		}
		if _, err := fmt.Fprintf(w, "%s%s", separator, text); err != nil {
			return err
		}
	}
	return nil
}

const unregisterExample = `  portico unregister billing

  # a backend that the gateway was started with, once, and is not any more
  portico unregister core --force`

func newUnregister() *cobra.Command {
	var c clientFlags
	var force bool
	cmd := &cobra.Command{
		Use:     "unregister NAME",
		Short:   "Take a server from behind the gateway",
		Long:    "Delete a Backend and the APIServices that \"portico register\" made for it. Those that the gateway made of what the\nserver said go with it. One that gateways start with is left alone without --force: they make it again.",
		Example: unregisterExample,
		Args:    oneName("unregister", ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			gateway, err := c.open()
			if err != nil {
				return err
			}
			return gateway.unregister(cmd.Context(), args[0], force, cmd.OutOrStdout())
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&force, "force", false, "delete a backend that gateways start with as well, and what it serves with it")
	c.add(cmd)
	return cmd
}

// oneName checks that a command has one argument, the name of a Backend.
func oneName(command, rest string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("the name of the backend is missing, as in: %s", strings.TrimSpace(fmt.Sprintf("portico %s billing %s", command, rest)))
		case len(args) > 1:
			return fmt.Errorf("%q: there is one name, and that is %q", args[1], args[0])
		case args[0] == "":
			return errors.New("the name of the backend is empty")
		}
		return nil
	}
}

// backendPath is the path of one Backend.
func backendPath(name string) string { return backendsPath + "/" + url.PathEscape(name) }
