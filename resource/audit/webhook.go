package audit

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"portico/resource/egress"
)

// webhookSink is the sink of a server that gets events in lists. Upstream's follows redirects, and has no place for a
// transport that does not.
type webhookSink struct{ server *webhookutil.GenericWebhook }

// openWebhook returns the webhook of a kubeconfig. It does not connect.
func openWebhook(o *WebhookOptions) (audit.Backend, error) {
	cfg, err := webhookutil.LoadKubeconfig(o.ConfigFile, o.Dial)
	if err != nil {
		return nil, err
	}
	cfg.Wrap(egress.RefuseRedirects)
	backoff := webhookutil.DefaultRetryBackoffWithInitialDelay(o.InitialBackoff)
	server, err := webhookutil.NewGenericWebhook(audit.Scheme, audit.Codecs, cfg, []schema.GroupVersion{eventVersion}, backoff)
	if err != nil {
		return nil, err
	}
	server.ShouldRetry = func(err error) bool { return err != nil }
	return webhookSink{server}, nil
}

// ProcessEvents implements audit.Sink. Events that the server does not take are lost, logged and counted.
func (w webhookSink) ProcessEvents(events ...*auditapi.Event) bool {
	var list auditapi.EventList
	for _, e := range events {
		list.Items = append(list.Items, *e)
	}
	ctx := context.Background()
	err := w.server.WithExponentialBackoff(ctx, func() rest.Result { return w.server.RestClient.Post().Body(&list).Do(ctx) }).Error()
	if err != nil {
		audit.HandlePluginError(w.String(), err, events...)
	}
	return err == nil
}

// Run implements audit.Backend.
func (webhookSink) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (webhookSink) Shutdown() {}

// String returns the name in metrics.
func (webhookSink) String() string { return "webhook" }
