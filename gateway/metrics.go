package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

// infos are the resources that the gateway stores.
func (g *Gateway) infos() []*resource.Info {
	var out []*resource.Info
	for _, r := range g.resources {
		if r.Store != nil {
			out = append(out, &r.Info)
		}
	}
	return out
}

// registerLastGood shows how much of what the gateway goes by is from before.
func registerLastGood(registry prometheus.Registerer, restored func() int) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portico_gateway_last_good_documents",
		Help: "How many last-good documents, of servers and of what is followed in the core server, have not been said anew since this gateway began.",
	}, func() float64 { return float64(restored()) }))
}
