package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
)

// writeAttempts is how often an object that others change meanwhile is read and
// written again.
const writeAttempts = 5

// What a command did with an object.
const (
	created   = "created"
	updated   = "updated"
	unchanged = "unchanged"
)

// register writes what is asked for, and says what it did.
func (c *gatewayClient) register(ctx context.Context, r *registration, out io.Writer) error {
	var old backend.Backend
	err := c.get(ctx, backendPath(r.name), &old)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	exists := err == nil
	if err := ofGateway(&old); err != nil {
		return err
	}
	// Before anything is written: a Backend that nothing may lead to is no use.
	for _, want := range r.apiServices() {
		if err := c.free(ctx, want); err != nil {
			return err
		}
	}
	steps := []func(context.Context, *registration, io.Writer) error{c.registerBackend, c.registerAPIServices}
	if exists {
		// Those that the gateway made go when the Backend does not ask for them any
		// more: they are taken over first, so that requests find a way all the time.
		slices.Reverse(steps)
	}
	if exists {
		steps = append(steps, c.giveBack)
	}
	for _, step := range steps {
		if err := step(ctx, r, out); err != nil {
			return err
		}
	}
	return nil
}

func (c *gatewayClient) registerBackend(ctx context.Context, r *registration, out io.Writer) error {
	did, err := c.writeBackend(ctx, r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "backend %s %s\n", r.name, did)
	return err
}

func (c *gatewayClient) registerAPIServices(ctx context.Context, r *registration, out io.Writer) error {
	for _, want := range r.apiServices() {
		did, err := c.writeAPIService(ctx, r, want)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "apiservice %s %s\n", want.Name, did)
	}
	return nil
}

// ofGateway is the error of a Backend that a gateway starts with: where it is
// says the gateway's command line, and what it serves is not to be narrowed by
// accident.
func ofGateway(b *backend.Backend) error {
	const label = apiservice.AutomanagedLabel
	if b.Labels[label] == "" {
		return nil
	}
	return fmt.Errorf("register %[1]s: the gateway starts with a backend of that name, which says where it is; choose another name, or make it yours first: kubectl label backend %[1]s %[2]s-", b.Name, label)
}

// writeBackend creates or updates the Backend.
func (c *gatewayClient) writeBackend(ctx context.Context, r *registration) (did string, err error) {
	return attempt(func() (string, error) {
		var old backend.Backend
		err := c.get(ctx, backendPath(r.name), &old)
		switch {
		case apierrors.IsNotFound(err):
			// Also where the kind itself is not served; the next answer says so.
			return created, c.send(ctx, http.MethodPost, backendsPath, r.backend(&backend.Backend{}), nil)
		case err != nil:
			return "", err
		}
		if err := ofGateway(&old); err != nil {
			return "", err
		}
		want := r.backend(&old)
		if reflect.DeepEqual(want.Spec, old.Spec) {
			return unchanged, nil
		}
		return updated, c.send(ctx, http.MethodPut, backendPath(r.name), want, nil)
	})
}

// writeAPIService creates an APIService or updates one of the same Backend, whose
// priorities stay if no flag says otherwise. One of another server is left alone.
func (c *gatewayClient) writeAPIService(ctx context.Context, r *registration, want *apireg.APIService) (did string, err error) {
	at := apiServicesPath + "/" + url.PathEscape(want.Name)
	return attempt(func() (string, error) {
		var old apireg.APIService
		err := c.get(ctx, at, &old)
		switch {
		case apierrors.IsNotFound(err):
			return created, c.send(ctx, http.MethodPost, apiServicesPath, want, nil)
		case err != nil:
			return "", err
		}
		if err := ofAnother(&old, want); err != nil {
			return "", err
		}
		next := old
		next.Spec = want.Spec
		next.Spec.GroupPriorityMinimum, next.Spec.VersionPriority = old.Spec.GroupPriorityMinimum, old.Spec.VersionPriority
		r.prioritize(&next.Spec.GroupPriorityMinimum, &next.Spec.VersionPriority)
		if !apiservice.IsAutomanaged(&old) && reflect.DeepEqual(next.Spec, old.Spec) {
			return unchanged, nil
		}
		// One that the gateway made goes when the server says it is gone; this
		// one was asked for.
		delete(next.Labels, apiservice.AutomanagedLabel)
		return updated, c.send(ctx, http.MethodPut, at, &next, nil)
	})
}

// free checks that no other server answers for an APIService that is wanted.
func (c *gatewayClient) free(ctx context.Context, want *apireg.APIService) error {
	var old apireg.APIService
	switch err := c.get(ctx, apiServicesPath+"/"+url.PathEscape(want.Name), &old); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return ofAnother(&old, want)
}

// ofAnother is the error of an APIService that leads to another server than the
// wanted one.
func ofAnother(old, want *apireg.APIService) error {
	const by = apiservice.BackendAnnotation
	if old.Spec.Service == nil && old.Annotations[by] == want.Annotations[by] {
		return nil
	}
	return fmt.Errorf("register %s: %s answers for it already; unregister that, or delete APIService %s, first", groupVersionOf(want), serverOf(old), want.Name)
}

// attempt writes again where somebody else was faster: has changed, made or removed
// what was read a moment before.
func attempt(write func() (string, error)) (did string, err error) {
	for range writeAttempts {
		did, err = write()
		faster := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || did == updated && apierrors.IsNotFound(err)
		if !faster {
			break
		}
	}
	return did, err
}

// unregister deletes the Backend and the users' APIServices that lead to it,
// these first: none shall lead nowhere. One that gateways start with it deletes
// only by force.
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
	var list apireg.APIServiceList
	if err := c.get(ctx, apiServicesPath, &list); err != nil {
		return err
	}
	for i := range list.Items {
		a := &list.Items[i]
		if a.Spec.Service != nil || a.Annotations[apiservice.BackendAnnotation] != name || apiservice.IsAutomanaged(a) {
			continue
		}
		if err := c.delete(ctx, apiServicesPath+"/"+url.PathEscape(a.Name)); err != nil {
			return err
		}
		fmt.Fprintf(out, "apiservice %s deleted\n", a.Name)
	}
	if err := c.delete(ctx, backendPath(name)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "backend %s deleted\n", name)
	return err
}

// delete deletes an object; that it is gone already is as good.
func (c *gatewayClient) delete(ctx context.Context, path string) error {
	if err := c.send(ctx, http.MethodDelete, path, nil, nil); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
