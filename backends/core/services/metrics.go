package services

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"

	"portico/resource"
)

// allocations are the metrics of allocations and repairs, with the names of kube-apiserver's.
type allocations struct {
	services *Services

	addresses, addressFailures *prometheus.CounterVec // by cidr and scope
	latency                    *prometheus.HistogramVec
	ports, portFailures        *prometheus.CounterVec // by scope
	addressErrors, portErrors  *prometheus.CounterVec // by type
	repairFailures             prometheus.Counter
	portRepairFailures         prometheus.Counter

	usedIPs, freeIPs, usedPorts, freePorts *prometheus.Desc
	portsInUse                             atomic.Int64 // when this process saw them last
}

const (
	addressAllocator = "kube_apiserver_clusterip_allocator_"
	portAllocator    = "kube_apiserver_nodeport_allocator_"
)

func newAllocations(s *Services) *allocations {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &allocations{
		services:        s,
		addresses:       vec(addressAllocator+"allocation_total", "Allocations of cluster IPs.", "cidr", "scope"),
		addressFailures: vec(addressAllocator+"allocation_errors_total", "Failed allocations of cluster IPs.", "cidr", "scope"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: addressAllocator + "allocation_duration_seconds", Help: "Duration of allocations of cluster IPs.", Buckets: prometheus.DefBuckets,
		}, []string{"cidr"}),
		ports:              vec(portAllocator+"allocation_total", "Allocations of node ports.", "scope"),
		portFailures:       vec(portAllocator+"allocation_errors_total", "Failed allocations of node ports.", "scope"),
		addressErrors:      vec("apiserver_clusterip_repair_ip_errors_total", "Wrong claims of cluster IPs found by repairs.", "type"),
		portErrors:         vec("apiserver_nodeport_repair_port_errors_total", "Wrong claims of node ports found by repairs.", "type"),
		repairFailures:     counter("apiserver_clusterip_repair_reconcile_errors_total", "Failed repairs of cluster IPs."),
		portRepairFailures: counter("apiserver_nodeport_repair_reconcile_errors_total", "Failed repairs of node ports."),
		usedIPs:            gauge(addressAllocator+"allocated_ips", "Cluster IPs in use.", "cidr"),
		freeIPs:            gauge(addressAllocator+"available_ips", "Free cluster IPs.", "cidr"),
		usedPorts:          gauge(portAllocator+"allocated_ports", "Node ports in use."),
		freePorts:          gauge(portAllocator+"available_ports", "Free node ports."),
	}
}

// Metrics returns the metrics of allocations and repairs.
func (s *Services) Metrics() prometheus.Collector { return s.metrics }

func (a *allocations) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		a.addresses, a.addressFailures, a.latency, a.ports, a.portFailures, a.addressErrors, a.portErrors, a.repairFailures, a.portRepairFailures,
	}
}

// Describe implements prometheus.Collector.
func (a *allocations) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range a.collectors() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{a.usedIPs, a.freeIPs, a.usedPorts, a.freePorts} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The addresses are those in the cache.
func (a *allocations) Collect(ch chan<- prometheus.Metric) {
	for _, c := range a.collectors() {
		c.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	used := a.portsInUse.Load()
	gauge(a.usedPorts, float64(used))
	gauge(a.freePorts, float64(int64(a.services.ports.Size)-used))

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cidrs, err := a.services.serviceCIDRs(ctx)
	if err != nil {
		return
	}
	list, err := a.services.ipAddresses().Store.List(ctx, resource.ListOptions{At: resource.At{Freshness: resource.Any}})
	if err != nil {
		return
	}
	ranges := map[ipRange]int{}
	for _, c := range cidrs {
		for _, r := range rangesOf(c) {
			ranges[r] = 0
		}
	}
	for _, o := range list.Items {
		addr, err := netip.ParseAddr(o.Name)
		if err != nil || o.Labels.Get(networkingv1.LabelManagedBy) != managedBy {
			continue
		}
		for r := range ranges {
			if r.Contains(addr) {
				ranges[r]++
			}
		}
	}
	for r, n := range ranges {
		gauge(a.usedIPs, float64(n), r.String())
		gauge(a.freeIPs, max(float64(r.last())-float64(n), 0), r.String())
	}
}

func (a *allocations) addressAllocated(cidr, scope string, start time.Time) {
	a.addresses.WithLabelValues(cidr, scope).Inc()
	a.latency.WithLabelValues(cidr).Observe(time.Since(start).Seconds())
}

func (a *allocations) addressFailed(cidr, scope string) {
	if cidr != "" {
		a.addressFailures.WithLabelValues(cidr, scope).Inc()
	}
}

func (a *allocations) portsAllocated(scopes map[string]int) {
	for scope, n := range scopes {
		a.ports.WithLabelValues(scope).Add(float64(n))
	}
}

func (a *allocations) portFailed(scope string) {
	if scope != "" {
		a.portFailures.WithLabelValues(scope).Inc()
	}
}
