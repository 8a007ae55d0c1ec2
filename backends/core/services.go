package core

import (
	"context"
	"time"

	"portico/backends/core/services"
	"portico/resource"
	"portico/resource/loop"
)

// completeServices sets the defaults of the fields of services.
func (cfg *Config) completeServices() {
	if len(cfg.ServiceClusterIPRanges) == 0 {
		cfg.ServiceClusterIPRanges = []string{"10.96.0.0/16"}
	}
	if cfg.ServiceNodePortRange == "" {
		cfg.ServiceNodePortRange = "30000-32767"
	}
	if cfg.EventTTL == 0 {
		cfg.EventTTL = time.Hour
	}
}

// assembleServices makes the allocator of addresses and ports.
func (c *Core) assembleServices() (err error) {
	c.services, err = services.New(services.Config{
		ClusterIPRanges: c.cfg.ServiceClusterIPRanges, NodePortRange: c.cfg.ServiceNodePortRange,
		Resource: c.find, Store: func(info *resource.Info) resource.Store { return c.storage.Store(info) },
		EventTTL: c.cfg.EventTTL, Log: c.log,
	})
	return err
}

// repairServices repairs the claims of addresses and ports once in this server, which lets it
// allocate, and then every minute in one server at a time.
func (c *Core) repairServices(ctx context.Context) error {
	logged := ""
	err := loop.Retry(ctx, loop.Backoff{Initial: 20 * time.Millisecond, Max: time.Second}, func(ctx context.Context) error {
		err := c.services.Repair(ctx)
		if err == nil {
			c.started.repair.Store(true)
		} else if ctx.Err() == nil && err.Error() != logged && c.cache.Ready() {
			logged = err.Error()
			c.log.Warn("claims of services are not repaired", "err", err)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.campaign(ctx, "service-repair", func(ctx context.Context) {
		// Both end with ctx.
		wake := new(loop.Signal)
		_ = loop.Together(ctx,
			func(ctx context.Context) error { return c.services.Watch(ctx, wake) },
			func(ctx context.Context) error { return c.reconcile(ctx, "service-repair", wake, c.services.Repair) },
		)
	})
}
