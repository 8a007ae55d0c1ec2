package core

import (
	"errors"
	"net/http"

	"portico/resource/serve"
)

// Controllers the first success of which is a health check, by their names in the log. repairWork is the name of an election,
// too.
const (
	systemNamespacesWork  = "system namespaces"
	kubernetesServiceWork = "service default/kubernetes"
	priorityClassesWork   = "system priority classes"
	repairWork            = "service-repair"
)

// succeededOnce returns a function that reports whether the work of that name has succeeded since the start.
func (c *Core) succeededOnce(name string) func() bool {
	return func() bool {
		_, ok := c.succeeded.Load(name)
		return ok
	}
}

func (c *Core) addHealthChecks() {
	c.health.AddStorage(c.etcd.Healthy)
	c.encrypted.AddChecks(c.health.AddAside)
	c.health.AddReady("informer-sync", func(*http.Request) error {
		if !c.cache.Ready() {
			return errors.New("the watch cache has not been filled yet")
		}
		return nil
	})
	if c.shard == nil {
		c.health.AddPostStartHook("poststarthook/start-system-namespaces-controller", c.succeededOnce(systemNamespacesWork))
		c.health.AddOptionalPostStartHook("poststarthook/bootstrap-controller", c.succeededOnce(kubernetesServiceWork))
		c.health.AddOptionalPostStartHook("poststarthook/start-service-ip-repair-controllers", c.succeededOnce(repairWork))
		c.health.AddOptionalPostStartHook("poststarthook/scheduling/bootstrap-system-priority-classes", c.succeededOnce(priorityClassesWork))
	}
	c.health.AddAside(serve.WritesCheck, func(*http.Request) error { return errors.Join(c.engine.Ready(), c.shard.ready()) })
}
