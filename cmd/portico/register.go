package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"portico/apiservice"
	"portico/apiservice/backend"
)

const registerLong = `Register a server behind the gateway, or change how it is registered.

This applies a Backend of the given name, and waits until the gateway reaches the server and has registered what is asked for:
  --group G              every version of G that the server lists, and more groups if --group is repeated
  --group G --version V  these versions of G only
  --all-groups           everything that the server lists
  --rest                 it has no Kubernetes discovery, but an OpenAPI 3 document: that becomes --group G --version V
It is a server-side apply: what an earlier register set and this one does not goes back to its default, and fields that others
set stay as they are. There is more to a Backend than these flags: kubectl explain backend.spec lists it, kubectl edit backend
NAME changes it, and --dry-run=client -o yaml prints a Backend to begin with.

A "portico core" or "portico crd" on another machine is registered like any other server. Give it
--health-path='/readyz?exclude=etcd&exclude=etcd-readiness': then it gets no requests once it begins to stop, and keeps its
requests while etcd is away, when it is not ready but answers from memory.`

const registerExample = `  # an API server of three processes, with certificates of its own CA
  portico register billing --url=https://10.0.0.1:8443 --url=https://10.0.0.2:8443 --url=https://10.0.0.3:8443 \
    --ca-file=billing-ca.crt --server-name=billing.internal --group=billing.example.com

  # a REST server on this machine, as pets.example.com/v1
  portico register pets --url=http://127.0.0.1:8080 --rest --group=pets.example.com --version=v1

  # a tenth of the users to a new release
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
	fs.DurationVar(&f.wait, "wait", 30*time.Second, "maximum `time` to wait until the server is available; 0 means do not wait")
	fs.StringVar(&f.dryRun, "dry-run", dryRunNone, "`mode`: none writes the objects, client prints them and sends nothing")
	fs.Lookup("dry-run").NoOptDefVal = dryRunClient
	fs.StringVarP(&f.output, "output", "o", "yaml", "output `format` of --dry-run: yaml or json")
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
	gateway.warnings = progress
	if err := gateway.register(ctx, &f.want, out); err != nil {
		return err
	}
	if f.wait <= 0 {
		return nil
	}
	w := registerWait{gateway: gateway, want: &f.want, out: out, progress: progress}
	return w.run(ctx, f.wait)
}

// register applies the Backend, and says what it did.
func (c *gatewayClient) register(ctx context.Context, r *registration, out io.Writer) error {
	var old, now backend.Backend
	err := c.get(ctx, backendPath(r.name), &old)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if old.Labels[apiservice.AutomanagedLabel] != "" {
		return fmt.Errorf("register %[1]s: the gateway starts with a backend of that name, and its flags say where it is; choose another name, or make it yours first: kubectl label backend %[1]s %[2]s-", r.name, apiservice.AutomanagedLabel)
	}
	did := "updated"
	if err != nil {
		did = "created"
	}
	if err := c.apply(ctx, backendPath(r.name), withoutEmpty(r.backend()), &now); err != nil {
		return err
	}
	if now.Generation == old.Generation && now.UID == old.UID {
		did = "unchanged"
	}
	_, err = fmt.Fprintf(out, "backend %s %s\n", r.name, did)
	return err
}

// Values of --dry-run, as kubectl has them.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
)

func (f *registerFlags) check(saysForm bool) error {
	switch {
	case f.wait < 0:
		return errors.New("--wait must not be negative (0 means do not wait)")
	case saysForm && f.dryRun == dryRunNone:
		return fmt.Errorf("-o %s needs --dry-run=client; portico backends NAME -o %[1]s prints a stored Backend", f.output)
	case f.dryRun != dryRunNone && f.dryRun != dryRunClient:
		return fmt.Errorf("--dry-run %q: must be none or client; for a check by the gateway, print the objects and use kubectl apply --dry-run=server -f -", f.dryRun)
	case f.output != "yaml" && f.output != "json":
		return fmt.Errorf("--output %q: must be yaml or json", f.output)
	}
	return nil
}

// print prints the Backend that would be applied.
func (r *registration) print(w io.Writer, form string) error {
	b := r.backend()
	if errs := backend.Validate(b); len(errs) > 0 {
		return fmt.Errorf("the gateway would refuse this: %w", errs.ToAggregate())
	}
	text, err := json.Marshal(withoutEmpty(b))
	if form == "json" {
		text = append(text, '\n')
	} else if err == nil {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("encode Backend: %w", err)
	}
	_, err = w.Write(text)
	return err
}

const unregisterExample = `  portico unregister billing

  # a Backend that an earlier gateway started with
  portico unregister core --force`

func newUnregister() *cobra.Command {
	var c clientFlags
	var force bool
	cmd := &cobra.Command{
		Use:     "unregister NAME",
		Short:   "Remove a server from the gateway",
		Long:    "Delete a Backend. The APIServices that the gateway registered for it are removed as well; those that a user made stay,\nand are unavailable. A Backend that gateways start with is deleted only with --force: they make it again.",
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
	cmd.Flags().BoolVar(&force, "force", false, "delete a backend even if gateways start with it")
	c.add(cmd)
	return cmd
}

// unregister deletes the Backend. One that gateways start with is deleted only by force.
func (c *gatewayClient) unregister(ctx context.Context, name string, force bool, out io.Writer) error {
	var b backend.Backend
	switch err := c.get(ctx, backendPath(name), &b); {
	case apierrors.IsNotFound(err):
		return elsewhere(err)
	case err != nil:
		return err
	}
	if b.Labels[apiservice.AutomanagedLabel] != "" && !force {
		return fmt.Errorf("unregister %[1]s: gateways start with a backend of that name, and make it again while one is started with --backend=%[1]s=…: "+
			"start them without it, and repeat this with --force; every API that it serves is gone then, until it is back", name)
	}
	if err := c.send(ctx, http.MethodDelete, backendPath(name), nil, nil); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err := fmt.Fprintf(out, "backend %s deleted\n", name)
	return err
}

// oneName checks that a command has one argument, the name of a Backend.
func oneName(command, rest string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("the name of the backend is missing, as in: %s", strings.TrimSpace(fmt.Sprintf("portico %s billing %s", command, rest)))
		case len(args) > 1:
			return fmt.Errorf("%q: only one name is allowed, and it is %q", args[1], args[0])
		case args[0] == "":
			return errors.New("the name of the backend is empty")
		}
		return nil
	}
}

// backendPath is the path of one Backend.
func backendPath(name string) string { return backendsPath + "/" + url.PathEscape(name) }
