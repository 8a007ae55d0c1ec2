package stored

import (
	"fmt"
	"log/slog"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/backends/core/kinds"
	"portico/backends/crd"
	"portico/gateway/access"
	"portico/gateway/flow"
	"portico/resource"
	"portico/resource/rest"
)

// Process is one that stores objects.
type Process string

// The processes.
const (
	Gateway Process = "gateway"
	Core    Process = "core"
	CRD     Process = "crd"
)

// Kind is a built-in kind that this version stores.
type Kind struct {
	*rest.Kind
	Process Process
}

// internal are storage paths of objects that are no resource: the addresses of gateways (resource/masterlease), and the
// node ports that services have (backends/core/services).
var internal = map[string]Kind{
	"masterleases": {&rest.Kind{Info: resource.Info{Kind: "Endpoints", Versions: []string{"v1"}, Path: "masterleases"}}, Gateway},
	"ranges":       {&rest.Kind{Info: resource.Info{Kind: "RangeAllocation", Versions: []string{"v1"}, Path: "ranges"}}, Core},
}

// Kinds returns the built-in kinds that this version stores, by storage path. Of kinds that share a path it is the one in
// which objects are stored.
func Kinds() (map[string]Kind, error) {
	all := map[string]Kind{}
	add := func(process Process, of ...*rest.Kind) {
		for _, k := range of {
			if _, shared := all[k.StoragePath()]; !shared && k.Review == nil && k.Codec != nil {
				all[k.StoragePath()] = Kind{k, process}
			}
		}
	}
	for path, k := range internal {
		all[path] = k
	}
	log := slog.New(slog.DiscardHandler)
	services, err := apiservice.Kind()
	if err != nil {
		return nil, fmt.Errorf("list kinds: %w", err)
	}
	backends, err := backend.Kind()
	if err != nil {
		return nil, fmt.Errorf("list kinds: %w", err)
	}
	roles, err := access.New(access.Config{Logger: log}).Kinds()
	if err != nil {
		return nil, fmt.Errorf("list kinds: %w", err)
	}
	flows, err := flow.New(flow.Config{Logger: log}).Kinds()
	if err != nil {
		return nil, fmt.Errorf("list kinds: %w", err)
	}
	add(Gateway, services, backends)
	add(Gateway, roles...)
	add(Gateway, flows...)
	add(Core, kinds.All(kinds.Config{})...)
	add(CRD, crd.DefinitionKind())
	delete(all, "componentstatuses") // made for each request
	return all, nil
}
