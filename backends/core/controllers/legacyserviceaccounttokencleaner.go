package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource/authn"
)

const (
	// legacyInterval is the pause between two looks at the tokens of Secrets. keptUnused is how
	// long an unused token stays valid, and how long it is kept after that.
	legacyInterval = 24 * time.Hour
	keptUnused     = 365 * 24 * time.Hour
)

// cleanLegacyTokens marks the tokens of Secrets that service accounts list (auto-generated ones)
// as invalid when neither they nor, as volumes or variables of pods, their Secrets were used for
// keptUnused, and deletes the Secrets when they were marked for as long.
func cleanLegacyTokens(ctx context.Context, env *Env) error {
	secrets := env.tokenSecrets()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { secrets.RunWithContext(ctx) })
	return env.everyInterval(ctx, legacyInterval, secrets, func(ctx context.Context) {
		since, err := env.trackedSince(ctx)
		if err != nil || env.Clock.Now().Before(since.Add(keptUnused)) {
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil { // without the ConfigMap no use is a year old
				env.Log.Warn("cannot read the first day of token tracking", "err", err)
			}
			return
		}
		for _, o := range secrets.GetStore().List() {
			s := o.(*corev1.Secret)
			if err := ignoreNotFound(env.cleanLegacyToken(ctx, s)); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
				env.Log.Warn("cannot clean an unused token", "namespace", s.Namespace, "secret", s.Name, "err", err)
			}
		}
	})
}

// trackedSince returns the first day on which every use is recorded: the one after the day of the
// ConfigMap.
func (e *Env) trackedSince(ctx context.Context) (time.Time, error) {
	cm, err := e.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authn.LegacyTokenTrackingConfigMap, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, err
	}
	day, err := time.Parse(authn.DayFormat, cm.Data[authn.LegacyTokenTrackingKey])
	if err != nil {
		return time.Time{}, fmt.Errorf("ConfigMap %s: %w", authn.LegacyTokenTrackingConfigMap, err)
	}
	return day.AddDate(0, 0, 1), nil
}

// cleanLegacyToken marks or deletes one Secret, if it is to be.
func (e *Env) cleanLegacyToken(ctx context.Context, s *corev1.Secret) error {
	now := e.Clock.Now().UTC()
	limit := now.Add(-keptUnused)
	used, known := s.Labels[authn.LabelLastUsed]
	if _, err := time.Parse(authn.DayFormat, used); known && (err != nil || used >= limit.Format(authn.DayFormat)) {
		return nil
	}
	if s.DeletionTimestamp != nil || !s.CreationTimestamp.Time.Before(limit) {
		return nil
	}
	name, uid := accountOf(s)
	sa, err := e.Client.CoreV1().ServiceAccounts(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || uid != "" && uid != sa.UID || !slices.ContainsFunc(sa.Secrets, func(r corev1.ObjectReference) bool { return r.Name == s.Name }) {
		return err
	}
	if mounted, err := e.mentioned(ctx, s); err != nil || mounted {
		return err
	}
	client, since := e.Client.CoreV1().Secrets(s.Namespace), s.Labels[authn.LabelInvalidSince]
	if _, err := time.Parse(authn.DayFormat, since); err != nil {
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // strings cannot fail
			"uid": s.UID, "labels": map[string]string{authn.LabelInvalidSince: now.Format(authn.DayFormat)},
		}})
		_, err := client.Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	if since >= limit.Format(authn.DayFormat) {
		return nil
	}
	return client.Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}})
}

// mentioned reports whether a value in the spec of a pod is the name of the Secret, in whichever
// field: too many Secrets are kept rather than too few.
func (e *Env) mentioned(ctx context.Context, s *corev1.Secret) (bool, error) {
	pods, err := e.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range pods.Items {
		data, err := json.Marshal(pods.Items[i].Spec)
		if err != nil || strings.Contains(string(data), strconv.Quote(s.Name)) {
			return true, err
		}
	}
	return false, nil
}
