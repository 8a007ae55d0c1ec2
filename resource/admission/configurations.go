package admission

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"portico/resource"
)

const configurationGroup = admissionv1.GroupName

// configurationInfo describes a kind of configuration.
func configurationInfo(plural, kind string) *resource.Info {
	return &resource.Info{Group: configurationGroup, Versions: []string{"v1"}, Resource: plural, Kind: kind}
}

// unreachable is the store of a resource of others in a process that has no way
// to them.
type unreachable struct {
	resource.Store // nil: nothing but reads is called
	info           *resource.Info
}

func (u unreachable) Info() *resource.Info { return u.info }

func (u unreachable) err() error {
	return resource.Unavailable(fmt.Sprintf("there is no way to the server of %s", u.info.GroupResource()), 0)
}

func (u unreachable) Get(context.Context, resource.Key, resource.At) (*resource.Object, error) {
	return nil, u.err()
}

func (u unreachable) List(context.Context, resource.ListOptions) (*resource.List, error) {
	return nil, u.err()
}

func (u unreachable) Watch(context.Context, resource.WatchOptions) (resource.Watcher, error) {
	return nil, u.err()
}

// lookupTimeout bounds a read that a write waits for.
const lookupTimeout = 5 * time.Second
