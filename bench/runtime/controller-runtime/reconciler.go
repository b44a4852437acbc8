package main

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// widgetReconciler keeps a ConfigMap of the same name for each Widget.
type widgetReconciler struct {
	client.Client
	scheme *runtime.Scheme
}

// Reconcile brings the ConfigMap to what the spec says, and then says so in the status.
func (r *widgetReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var widget Widget
	if err := r.Get(ctx, request.NamespacedName, &widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.ensureConfigMap(ctx, &widget); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.ensureStatus(ctx, &widget)
}

func (r *widgetReconciler) ensureConfigMap(ctx context.Context, widget *Widget) error {
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: widget.Namespace, Name: widget.Name},
	}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, configMap, func() error {
		configMap.Data = map[string]string{
			"size":    strconv.FormatInt(widget.Spec.Size, 10),
			"payload": widget.Spec.Payload,
		}
		return controllerutil.SetControllerReference(widget, configMap, r.scheme)
	})
	if err != nil {
		return fmt.Errorf("cannot ensure the ConfigMap: %w", err)
	}
	return nil
}

func (r *widgetReconciler) ensureStatus(ctx context.Context, widget *Widget) error {
	status := WidgetStatus{ObservedGeneration: widget.Generation, Ready: true}
	if widget.Status == status {
		return nil
	}
	widget.Status = status
	if err := r.Status().Update(ctx, widget); err != nil {
		return fmt.Errorf("cannot update the status: %w", err)
	}
	return nil
}
