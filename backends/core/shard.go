package core

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/admission/quota"
	"portico/resource/rest"
)

// shard is what a core server without the core group, which --runtime-config makes of it, reads of
// the one that has it: namespaces and resource quotas, through the gateway, as the CRD server does.
// Webhooks and policies are read there too. nil: this server has them itself.
type shard struct {
	namespaces *admission.NamespaceStates
	reader     resource.Reader // of namespaces
	quotas     *quota.Remote
}

var errNoNamespaces = errors.New("a server without v1 reads namespaces through the gateway; set --gateway")

// assembleShard sets c.shard if namespaces are not served here.
func (c *Core) assembleShard() error {
	for _, k := range c.served {
		if k.Group == "" {
			return nil
		}
	}
	if c.transport == nil {
		return about("--runtime-config", errNoNamespaces)
	}
	gateway := newGatewayClient(c.cfg.Gateway.URL, c.transport)
	reader := admission.NamespacesOver(gateway)
	c.shard = &shard{admission.NewNamespaceStates(reader, c.log), reader, quota.NewRemote(gateway, c.log)}
	return nil
}

// ready returns nil once the namespaces and quotas are known. s may be nil.
func (s *shard) ready() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.namespaces.Ready(), s.quotas.Ready())
}

// readOnly is a Store of the objects of another server.
type readOnly struct{ resource.Reader }

func (r readOnly) refuse(verb string) error {
	return apierrors.NewMethodNotSupported(r.Info().GroupResource(), verb)
}

// Create implements resource.Store.
func (r readOnly) Create(context.Context, resource.Key, *resource.Object, time.Duration) (*resource.Object, error) {
	return nil, r.refuse("create")
}

// Update implements resource.Store.
func (r readOnly) Update(context.Context, resource.Key, resource.Mutate) (*resource.Object, error) {
	return nil, r.refuse("update")
}

// Delete implements resource.Store.
func (r readOnly) Delete(context.Context, resource.Key, func(*resource.Object) error) (*resource.Object, error) {
	return nil, r.refuse("delete")
}

// namespaces returns the resource of namespaces, wherever they are stored.
func (c *Core) namespaces() *rest.Resource {
	r := c.find("", "namespaces")
	if c.shard != nil {
		return &rest.Resource{Kind: r.Kind, Store: readOnly{c.shard.reader}}
	}
	return r
}

// namespaceLabel is kinds.Config.NamespaceLabel.
func (c *Core) namespaceLabel(ctx context.Context, namespace, label string) (string, error) {
	o, err := c.namespaces().Store.Get(ctx, resource.Key{Name: namespace}, resource.At{})
	if err != nil {
		return "", err
	}
	return o.Labels.Get(label), nil
}
