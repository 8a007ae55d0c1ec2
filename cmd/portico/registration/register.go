package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/cmd/portico/client"
)

const registerLong = `Register a server behind the gateway, or change its registration.

This applies a Backend of the given name, and waits until the gateway reaches the server and has registered its groups:
  --group G              every version of G that the server lists; more groups if --group is repeated
  --group G --version V  these versions of G only
  --all-groups           everything that the server lists
  --rest                 a server without Kubernetes discovery: its OpenAPI 3 document becomes --group G --version V
It is a server-side apply: a field that an earlier register set and this one does not returns to its default, and fields of
other writers keep their values. A Backend has more fields than there are flags, such as timeouts, retries and limits:
"kubectl explain backend.spec" describes them, "kubectl edit backend NAME" sets them, and --dry-run=client -o yaml prints a
Backend to begin with.

A "portico core" or "portico crd" on another machine is registered like any other server. Give it
--health-path='/readyz?exclude=etcd&exclude=etcd-readiness': then it gets no requests once it begins to stop, and keeps
serving from memory while etcd is away.`

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
	client client.Flags
	want   registration
	wait   time.Duration
	dryRun string
	output string
}

// NewRegister returns the command that registers a server.
func NewRegister() *cobra.Command {
	var f registerFlags
	cmd := &cobra.Command{
		Use:     "register NAME",
		Short:   "Register a server behind the gateway, by its URLs",
		Long:    registerLong,
		Example: registerExample,
		Args:    backendName(1, "--url=https://host:port --all-groups"),
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
	f.client.Add(cmd)
	return cmd
}

func (f *registerFlags) run(ctx context.Context, out, progress io.Writer) error {
	if f.dryRun == dryRunClient {
		return f.want.print(out, f.output)
	}
	gateway, err := f.client.Open(progress)
	if err != nil {
		return err
	}
	if err := retryUnavailable(ctx, f.wait, progress, func() error { return register(ctx, gateway, &f.want, out) }); err != nil {
		return err
	}
	if f.wait <= 0 {
		return nil
	}
	return waitRegistered(ctx, gateway, &f.want, f.wait, out, progress)
}

// register applies the Backend, and prints whether it was created or updated.
func register(ctx context.Context, c *client.Client, r *registration, out io.Writer) error {
	var old, now backend.Backend
	err := c.Send(ctx, http.MethodGet, backendPath(r.name), nil, nil, &old)
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
	if err := c.Apply(ctx, backendPath(r.name), r.backend(), &now); err != nil {
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
	text, err := json.Marshal(b)
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

// NewUnregister returns the command that deletes a Backend.
func NewUnregister() *cobra.Command {
	var c client.Flags
	var force bool
	cmd := &cobra.Command{
		Use:     "unregister NAME",
		Short:   "Remove a server from the gateway",
		Long:    "Delete a Backend. The APIServices that the gateway registered for it are removed as well; those that a user made stay,\nand are unavailable. A Backend that gateways start with is deleted only with --force: they make it again.",
		Example: unregisterExample,
		Args:    backendName(1, ""),

		ValidArgsFunction: c.CompleteNames(backendsPath),
		RunE: func(cmd *cobra.Command, args []string) error {
			gateway, err := c.Open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return unregister(cmd.Context(), gateway, args[0], force, cmd.OutOrStdout())
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&force, "force", false, "delete a backend even if gateways start with it")
	c.Add(cmd)
	return cmd
}

// unregister deletes the Backend. One that gateways start with is deleted only by force.
func unregister(ctx context.Context, c *client.Client, name string, force bool, out io.Writer) error {
	var b backend.Backend
	switch err := c.Send(ctx, http.MethodGet, backendPath(name), nil, nil, &b); {
	case apierrors.IsNotFound(err):
		return elsewhere(err)
	case err != nil:
		return err
	}
	if b.Labels[apiservice.AutomanagedLabel] != "" && !force {
		return fmt.Errorf("unregister %[1]s: gateways start with a backend of that name, and make it again while one is started with --backend=%[1]s=…: "+
			"start them without it, and repeat this with --force; every API that it serves is gone then, until it is back", name)
	}
	if err := c.Send(ctx, http.MethodDelete, backendPath(name), nil, nil, nil); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err := fmt.Fprintf(out, "backend %s deleted\n", name)
	return err
}

// backendPath is the path of one Backend.
func backendPath(name string) string { return backendsPath + "/" + name }
