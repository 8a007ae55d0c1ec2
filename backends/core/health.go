package core

import (
	"errors"
	"net/http"

	"portico/resource/serve"
)

func (c *Core) addHealthChecks() {
	c.health.AddStorage(c.etcd.Healthy)
	c.encrypted.AddChecks(c.health.AddAside)
	c.health.AddInformerSync(c.cache.Ready)
	if c.shard == nil {
		c.health.AddPostStartCheck("poststarthook/start-system-namespaces-controller",
			serve.Until(c.started.namespaces.Load, "the system namespaces have not been created yet"))
		c.health.AddOptionalPostStartCheck("poststarthook/bootstrap-controller",
			serve.Until(c.started.kubernetesService.Load, "Service default/kubernetes has not been created yet"))
		c.health.AddOptionalPostStartCheck("poststarthook/start-service-ip-repair-controllers",
			serve.Until(c.started.repair.Load, "the claims of addresses and ports have not been repaired yet"))
		c.health.AddOptionalPostStartCheck("poststarthook/scheduling/bootstrap-system-priority-classes",
			serve.Until(c.started.priorityClasses.Load, "the system priority classes have not been created yet"))
		c.health.AddOptionalPostStartCheck("poststarthook/start-legacy-token-tracking-controller",
			serve.Until(c.started.legacyTokenTracking.Load, "the ConfigMap of legacy token tracking has not been created yet"))
	}
	c.health.AddAside(serve.WritesCheck, func(*http.Request) error { return errors.Join(c.engine.Ready(), c.shard.ready()) })
}
