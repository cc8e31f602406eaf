"""Legalizes a quantized graph: rewrites it to operations of the hardware, then joins these to layers.

The path of one convolution, in the order of `pipeline.legalize_graph`:

    boundary.cut_tail, cut_input           what the application computes (softmax, views, rounding) is cut off
    pipeline.refuse_shapes                 data must be a row, a line or an image of one sample
    pipeline.absorb_limits                 pointwise.absorb_bias, absorb_limit, absorb_quantize:
                                           Conv + Add + Relu + Quantize become one Conv
    pipeline.rewrite_to_hardware_ops       ops without an equivalent become convolutions (pointwise,
                                           resampling), all before the convolutions, because they add some
      pipeline.fold_input                  the application folds an input that no kernel can take
      convolutions.convolution_rule        the kernel as 3x3 or 1x1, by a plan of window_plans:
                                           one kernel alone (DirectPlan), else copies of the data (CopyPlan)
      copies.crop_by_convolution           rows and columns too many are cut off by kernels that copy
    layer_builder.LayerBuilder.build       one Layer for each Conv
      layer_fields.InputFusion.fuse_before the pool and the element-wise operation before it join the layer
      layer_fields.derive_arithmetic       bias, shift and activation, from the powers of two of its tensors
    layer_adjustments.align_joined_inputs  joined inputs begin with whole words
    pipeline.split_long_bias               an output layer with more bias than a memory holds becomes several

A rule returns None where it does not apply, and raises NoEquivalentError where the hardware lacks it;
`Refusals` collects these, so that a user sees all of them at once.
"""
