package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"portico/cmd/e2e"
)

// A StorageVersionMigration stores custom resources in the present storage version, after which
// the former one can be taken from the definition. A second one waits for the first.
func TestStorageVersionMigration(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gears.migration.example.com"
	const objects = "/apis/migration.example.com/%s/namespaces/default/gears"
	version := func(name string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, name, storage)
	}
	define := func(versions ...string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gears.migration.example.com"},"spec":{
			"group":"migration.example.com","scope":"Namespaced","names":{"plural":"gears","kind":"Gear"},"versions":[` + strings.Join(versions, ",") + `]}}`
	}
	change := func(versions ...string) (int, string) {
		return up.Do(t, http.MethodPatch, definition, define(versions...), "Content-Type: application/merge-patch+json")
	}
	up.Post(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", define(version("v1", true)))
	up.Shows(t, fmt.Sprintf(objects, "v1"), "GearList")
	for i := range 5 {
		up.Post(t, fmt.Sprintf(objects, "v1"), fmt.Sprintf(`{"apiVersion":"migration.example.com/v1","kind":"Gear","metadata":{"name":"g%d"},"teeth":%d}`, i, i))
	}
	if code, body := change(version("v1", false), version("v2", true)); code != http.StatusOK {
		t.Fatal(body)
	}
	up.Shows(t, fmt.Sprintf(objects, "v2"), "GearList")
	if code, body := change(version("v2", true)); code != http.StatusUnprocessableEntity || !strings.Contains(body, "status.storedVersions[0]") {
		t.Errorf("v1, in which objects are stored, can be taken away: %d %s", code, body)
	}
	for _, name := range []string{"first", "second"} {
		migrate(t, up, name, "migration.example.com", "gears")
	}
	for _, name := range []string{"first", "second"} {
		if got := migrationEnd(t, up, name); got != "Succeeded: Migration completed; Running False" {
			t.Errorf("migration %s: %s", name, got)
		}
	}
	up.Shows(t, definition, `"storedVersions":["v2"]`)
	up.Shows(t, definition, "The migration has succeeded and the stored versions have been updated")
	if code, body := change(version("v2", true)); code != http.StatusOK {
		t.Errorf("v1 cannot be taken away: %s", body)
	}
	up.Shows(t, fmt.Sprintf(objects, "v2")+"/g4", `"teeth":4`)

	migrate(t, up, "built-in", "", "configmaps")
	if got := migrationEnd(t, up, "built-in"); got != "Succeeded: Migration completed; Running False" {
		t.Errorf("migration of configmaps: %s", got)
	}
}

const migrations = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"

func migrate(t *testing.T, up *e2e.Installation, name, group, resource string) {
	t.Helper()
	up.Post(t, migrations, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"resource":{"group":%q,"resource":%q}}}`, name, group, resource))
}

// migrationEnd waits until a migration has ended and says how.
func migrationEnd(t *testing.T, up *e2e.Installation, name string) (how string) {
	t.Helper()
	e2e.Eventually(t, "migration "+name+" has ended", func() error {
		var m storagemigrationv1.StorageVersionMigration
		_, body := up.Do(t, http.MethodGet, migrations+"/"+name, "")
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			return err
		}
		running := meta.FindStatusCondition(m.Status.Conditions, "Running")
		for _, end := range []string{"Succeeded", "Failed"} {
			if c := meta.FindStatusCondition(m.Status.Conditions, end); c != nil && running != nil && running.Status == "False" {
				how = end + ": " + c.Message + "; Running " + string(running.Status)
				return nil
			}
		}
		return errors.New(body)
	})
	return how
}
