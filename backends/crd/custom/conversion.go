package custom

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"weak"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/webhook"
	restclient "k8s.io/client-go/rest"

	"portico/resource"
	"portico/resource/bytelru"
)

const (
	// callTimeout bounds a call of a conversion webhook.
	callTimeout = 30 * time.Second
	// maxCalls bounds the calls of one definition's webhook at a time. More wait for
	// callWait and are then rejected, so that a webhook that hangs holds few requests.
	maxCalls = 64
	callWait = time.Second
	// maxReviewed and maxReviewedBytes bound the objects of one call. Objects of several
	// versions may be larger than that alone.
	maxReviewed      = 500
	maxReviewedBytes = 2 << 20
	// maxConvertedBytes bounds the converted objects that are kept, in bytes.
	maxConvertedBytes = 32 << 20
	// convertedOverhead is the approximate size of a converted object without its data.
	convertedOverhead = 256
)

// WebhookClients configures the clients of conversion webhooks.
type WebhookClients struct {
	// Services resolves the Services of webhooks; nil: by their names in DNS.
	Services webhook.ServiceResolver
	// Clients wraps the resolver of clients; nil: they are upstream's.
	Clients webhook.AuthenticationInfoResolverWrapper
}

// newConverters returns the factory of upstream's converters, which call webhooks and check
// what they return.
func newConverters(clients WebhookClients) (*conversion.CRConverterFactory, error) {
	if clients.Services == nil {
		clients.Services = webhook.NewDefaultServiceResolver()
	}
	return conversion.NewCRConverterFactory(clients.Services, func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		if clients.Clients != nil {
			r = clients.Clients(r)
		}
		timeout := func(cfg *restclient.Config, err error) (*restclient.Config, error) {
			if err == nil {
				cfg.Timeout = callTimeout
			}
			return cfg, err
		}
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*restclient.Config, error) { return timeout(r.ClientConfigFor(hostPort)) },
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*restclient.Config, error) {
				return timeout(r.ClientConfigForService(name, namespace, port))
			},
		}
	})
}

// converter calls the conversion webhook of one definition. Safe for concurrent use.
type converter struct {
	objects runtime.ObjectConvertor
	calls   chan struct{} // holds maxCalls
}

// newConverter returns the converter of a definition; nil if it has no conversion webhook.
func (k *Kinds) newConverter(o *Outline) (*converter, error) {
	if !o.hasWebhook() {
		return nil, nil
	}
	objects, _, err := k.converters.NewConverter(o.CustomResourceDefinition)
	if err != nil {
		return nil, err
	}
	return &converter{objects, make(chan struct{}, maxCalls)}, nil
}

// hasWebhook reports whether objects are converted by a webhook.
func (o *Outline) hasWebhook() bool {
	return o.Spec.Conversion != nil && o.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}

// convert converts an object or a list of objects, which it does not change. Errors are
// StatusErrors.
func (c *converter) convert(in runtime.Object, to schema.GroupVersion) (runtime.Object, error) {
	wait := time.NewTimer(callWait)
	defer wait.Stop()
	select {
	case c.calls <- struct{}{}:
		defer func() { <-c.calls }()
	case <-wait.C:
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("conversion webhook for %v: %d calls have not been answered yet", in.GetObjectKind().GroupVersionKind(), maxCalls), 1)
	}
	out, err := c.objects.ConvertToVersion(in, to)
	if err != nil {
		// As upstream, a 500 without a reason.
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
		}}
	}
	return out, nil
}

// convertedKey identifies a stored object in the version of a codec. Objects are immutable
// and shared, so that their identity represents their content.
type convertedKey struct {
	object weak.Pointer[resource.Object]
	codec  *identity
}

// converted is a stored object in another version. data and err are set when done is closed.
type converted struct {
	done chan struct{}
	data []byte
	err  error
}

// errPanicked is the error of concurrent readers if a conversion panics.
var errPanicked = errors.New("convert object: the conversion failed")

// conversions are the results of conversion webhooks. Each object is converted once for all
// readers of a version. Safe for concurrent use.
type conversions struct {
	kept *bytelru.Cache[convertedKey, *converted]
}

func newConversions() *conversions {
	return &conversions{bytelru.New[convertedKey, *converted](maxConvertedBytes)}
}

// of returns stored objects of other versions in the version of the codec. One call of the
// webhook converts those that are not kept. Errors are not kept.
func (v *conversions) of(c *codec, objects ...*resource.Object) ([][]byte, error) {
	all := make([]*converted, len(objects))
	var own []int // what this call converts
	for i, o := range objects {
		all[i] = v.kept.GetOrAdd(convertedKey{weak.Make(o), c.id}, func() (*converted, int) {
			own = append(own, i)
			return &converted{done: make(chan struct{}), err: errPanicked}, convertedOverhead
		})
	}
	v.convert(c, objects, all, own)
	out := make([][]byte, len(objects))
	for i, one := range all {
		<-one.done
		if one.err != nil {
			return nil, one.err
		}
		out[i] = one.data
	}
	return out, nil
}

// convert sets all[i] to the converted objects[i], for each i of own.
func (v *conversions) convert(c *codec, objects []*resource.Object, all []*converted, own []int) {
	if len(own) == 0 {
		return
	}
	defer func() { // also when it panics
		for _, i := range own {
			one, key := all[i], convertedKey{weak.Make(objects[i]), c.id}
			same := func(kept *converted) bool { return kept == one }
			if one.err == nil {
				v.kept.Resize(key, same, convertedOverhead+len(one.data))
			} else if v.kept.Resize(key, same, 0) {
				v.kept.Remove(key)
			}
			close(one.done)
		}
	}()
	in := make([]*resource.Object, len(own))
	for n, i := range own {
		in[n] = objects[i]
	}
	data, err := c.convertStored(in)
	for n, i := range own {
		if all[i].err = err; err == nil {
			all[i].data = data[n]
		}
	}
}

// prepare converts stored objects of other versions, in calls of the webhook for many
// objects each. It implements rest.Kind.Prepare.
func (c *codec) prepare(objects []*resource.Object) error {
	for len(objects) > 0 {
		var batch []*resource.Object
		size := 0
		for len(objects) > 0 && len(batch) < maxReviewed {
			o := objects[0]
			if size += len(o.Data); size > maxReviewedBytes && len(batch) > 0 {
				break
			}
			objects = objects[1:]
			if o.APIVersion != c.gvk.GroupVersion().String() {
				batch = append(batch, o)
			}
		}
		if _, err := c.kinds.conversions.of(c, batch...); err != nil {
			return err
		}
	}
	return nil
}

// convertStored converts stored objects of other versions by one call of the webhook. They are
// normalized by the schemas of both versions.
func (c *codec) convertStored(objects []*resource.Object) ([][]byte, error) {
	all := make([]*unstructured.Unstructured, len(objects))
	for i, o := range objects {
		object, err := decodeObject(o.Data)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", c.gvk.Kind, err)
		}
		all[i] = &unstructured.Unstructured{Object: object}
		if err := c.normalizeOwn(all[i]); err != nil {
			return nil, fmt.Errorf("decode %s: %w", c.gvk.Kind, err)
		}
	}
	if err := c.convert(c.gvk, all...); err != nil {
		return nil, err
	}
	out := make([][]byte, len(objects))
	for i, u := range all {
		data, err := json.Marshal(u.Object)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", c.gvk.Kind, err)
		}
		out[i] = data
	}
	return out, nil
}

// convertTo converts objects by the webhook, in one call.
func (c *converter) convertTo(gvk schema.GroupVersionKind, all ...*unstructured.Unstructured) error {
	if len(all) == 1 {
		out, err := c.convert(all[0], gvk.GroupVersion())
		if err == nil {
			all[0].Object = out.(*unstructured.Unstructured).Object
		}
		return err
	}
	list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, len(all))}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	for i, u := range all {
		list.Items[i] = *u
	}
	out, err := c.convert(list, gvk.GroupVersion())
	if err != nil {
		return err
	}
	for i, u := range out.(*unstructured.UnstructuredList).Items {
		all[i].Object = u.Object
	}
	return nil
}
