package history

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"portico/resource"
)

// facts are the compared part of an object's state, without its revision.
type facts struct {
	key              resource.Key
	uid, token       string
	color, tier      string
	finalizers       string
	terminating      bool
	pad              int
	apiVersion, kind string
}

// record is an object as JSON.
type record struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string            `json:"namespace"`
		Name      string            `json:"name"`
		UID       string            `json:"uid"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Data struct {
		Token string `json:"token"`
		Tier  string `json:"tier"`
		Pad   string `json:"pad"`
	} `json:"data"`
}

// factsOf returns the facts of an object. Its header and its bytes must agree.
func factsOf(o *resource.Object) (facts, error) {
	var r record
	if err := json.Unmarshal(o.Data, &r); err != nil {
		return facts{}, fmt.Errorf("read object %s at %d: %w", o.Key(), o.Revision, err)
	}
	again, err := resource.Parse(o.Data)
	if err != nil {
		return facts{}, fmt.Errorf("parse object %s at %d: %w", o.Key(), o.Revision, err)
	}
	if again.Revision != o.Revision || again.Key() != o.Key() || again.Labels.Get("color") != o.Labels.Get("color") || r.Metadata.Name != o.Name {
		return facts{}, fmt.Errorf("header of %s at %d and bytes of %s at %d disagree", o.Key(), o.Revision, again.Key(), again.Revision)
	}
	return facts{
		key: o.Key(), uid: r.Metadata.UID, token: r.Data.Token,
		color: o.Labels.Get("color"), tier: r.Data.Tier,
		finalizers: strings.Join(o.Finalizers, ","), terminating: o.Terminating(),
		pad: len(r.Data.Pad), apiVersion: r.APIVersion, kind: r.Kind,
	}, nil
}

// traits are the random part of a state.
type traits struct {
	color, tier string
	pad         int
	// finalizer delays the object's deletion; it is not changed on an object that is being
	// deleted.
	finalizer bool
}

const finalizer = "historytest.portico.dev/hold"

// randomTraits returns traits by which objects enter and leave all selections.
func randomTraits(rnd *rand.Rand) traits {
	t := traits{
		color:     []string{"", "red", "blue"}[rnd.IntN(3)],
		tier:      []string{"", "gold"}[rnd.IntN(2)],
		finalizer: rnd.IntN(6) == 0,
	}
	switch n := rnd.IntN(50); {
	case n == 0:
		t.pad = rnd.IntN(100_000)
	case n < 10:
		t.pad = rnd.IntN(4000)
	default:
		t.pad = rnd.IntN(100)
	}
	return t
}

// next returns the state after cur, which is nil for a new object.
func next(key resource.Key, cur *resource.Object, token string, t traits) (*resource.Object, error) {
	return edit(key, cur, token, func(object, meta map[string]any) {
		labels := map[string]any{"app": "history"}
		if t.color != "" {
			labels["color"] = t.color
		}
		meta["labels"] = labels
		if meta["deletionTimestamp"] == nil {
			delete(meta, "finalizers")
			if t.finalizer {
				meta["finalizers"] = []any{finalizer}
			}
		}
		data := map[string]any{"token": token, "pad": strings.Repeat("x", t.pad)}
		if t.tier != "" {
			data["tier"] = t.tier
		}
		object["data"] = data
	})
}

// released returns cur without finalizers.
func released(cur *resource.Object, token string) (*resource.Object, error) {
	return edit(cur.Key(), cur, token, func(object, meta map[string]any) {
		delete(meta, "finalizers")
		object["data"].(map[string]any)["token"] = token
	})
}

// doomed returns cur with a deletionTimestamp.
func doomed(cur *resource.Object, token string) (*resource.Object, error) {
	return edit(cur.Key(), cur, token, func(object, meta map[string]any) {
		meta["deletionTimestamp"] = time.Unix(1_000_000_000, 0).UTC().Format(time.RFC3339)
		object["data"].(map[string]any)["token"] = token
	})
}

func edit(key resource.Key, cur *resource.Object, token string, change func(object, meta map[string]any)) (*resource.Object, error) {
	info := Info()
	object := map[string]any{
		"apiVersion": info.GVR(info.Versions[0]).GroupVersion().String(), "kind": info.Kind,
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name, "uid": token},
	}
	if cur != nil {
		object = map[string]any{}
		if err := json.Unmarshal(cur.Data, &object); err != nil {
			return nil, fmt.Errorf("edit %s: %w", key, err)
		}
	}
	change(object, object["metadata"].(map[string]any))
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("edit %s: %w", key, err)
	}
	return resource.Parse(data)
}
