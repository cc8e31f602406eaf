"""Places layers: inserts those that the hardware needs, and chooses processors, output slots and offsets.

`search.place_layers` calls, in this order:

1. `inserted_layers.split_unsupported`: combinations that the part lacks become several layers.
2. `adjacency.arrange_values`: values that must lie beside each other are tied; a copy
   is inserted where two ties conflict.
3. `search`: lists ways to place, those that ask least of the hardware first.
4. `attempt.PlacementAttempt`: tries one way: `allocate.choose_slots` chooses processors,
   `allocate.RegionPacker` offsets.

`values` says how many words a layer leaves in data memory. The input is placed like a layer's output.
"""
