"""What the shop sells, in words: departments, kinds of goods, and what can be said of them. All brands are invented."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A category of the shop. Its goods are made by drawing from these lists."""

    name: str
    nouns: tuple[str, ...]
    sizes: tuple[str, ...]
    """What stands at the end of a title; from small to large, from cheap to dear."""
    price: tuple[int, int]
    grams: tuple[int, int]
    materials: tuple[str, ...]
    features: tuple[str, ...]
    """Sentences of a description."""
    praise: tuple[str, ...]
    """What reviewers like: sentences."""
    complaints: tuple[str, ...]


@dataclass(frozen=True)
class Department:
    name: str
    about: str
    brands: tuple[str, ...]
    lines: tuple[str, ...]
    """Names of series: with a brand, one product each."""
    kinds: tuple[Kind, ...]


COLOURS = ("black", "white", "slate grey", "forest green", "navy blue", "sand", "rust red", "teal", "mustard yellow", "plum")

KITCHEN = Department(
    "Kitchen",
    "For people who cook on weekdays too.",
    ("Castellan", "Maru", "Brightwell", "Ostara", "Pellworm"),
    ("Alba", "Corvo", "Dune", "Everyday", "Fjord", "Grove", "Heron", "Isla", "Juniper", "Lark", "Meadow", "Orchard", "Prima"),
    (
        Kind(
            "Coffee and Tea",
            ("French Press", "Pour-Over Kettle", "Burr Grinder", "Teapot", "Moka Pot"),
            ("0.4 L", "0.6 L", "0.8 L", "1.0 L"),
            (24, 120),
            (420, 1600),
            ("borosilicate glass", "stainless steel", "cast iron", "glazed stoneware"),
            (
                "The handle stays cool while you pour.",
                "All parts come apart for cleaning.",
                "It works on gas, electric and induction hobs.",
                "The lid closes without a rattle.",
                "Marks on the inside show the fill level.",
            ),
            (
                "The handle stays cool.",
                "It pours without dripping.",
                "It cleans up in a minute.",
                "The coffee tastes better than from my old one.",
            ),
            ("The lid rattles.", "It holds less than I expected.", "The instructions are hard to follow.", "It drips when it is full."),
        ),
        Kind(
            "Cookware",
            ("Frying Pan", "Saucepan", "Dutch Oven", "Wok", "Griddle"),
            ("20 cm", "24 cm", "28 cm", "30 cm"),
            (29, 210),
            (900, 5200),
            ("cast iron", "carbon steel", "stainless steel", "hard-anodised aluminium"),
            (
                "It is safe in the oven up to 240 degrees.",
                "The base is flat and spreads heat evenly.",
                "The rim is shaped for pouring.",
                "It comes seasoned and ready to use.",
                "A helper handle makes it easy to lift.",
            ),
            ("It heats evenly.", "Nothing sticks to it.", "It feels solid in the hand.", "It went straight from the hob into the oven."),
            (
                "It is heavier than I thought.",
                "The coating scratched within a month.",
                "The handle gets hot.",
                "It does not fit my smallest hob.",
            ),
        ),
        Kind(
            "Knives and Boards",
            ("Chef's Knife", "Paring Knife", "Bread Knife", "Cutting Board", "Knife Block"),
            ("15 cm", "18 cm", "21 cm", "24 cm"),
            (16, 145),
            (80, 2100),
            ("high-carbon steel", "acacia wood", "bamboo", "stainless steel", "beech wood"),
            (
                "It is finished by hand.",
                "It rests well in either hand.",
                "A groove around the edge catches juice.",
                "It can be sharpened on any stone.",
                "It hangs from a leather loop.",
            ),
            ("It came very sharp.", "It feels balanced.", "It still looks new after a year.", "It does not slip on the counter."),
            ("It needs sharpening too often.", "The wood cracked near the edge.", "It is smaller than it looks in the picture."),
        ),
    ),
)

HOME = Department(
    "Home",
    "Light, warmth and order.",
    ("Lumen and Row", "Hearthside", "Tessel", "Ostara", "Willowby"),
    ("Aurora", "Birch", "Cloud", "Dawn", "Ember", "Fable", "Gable", "Haven", "Ivory", "Linden", "Moss", "Nook", "Quiet"),
    (
        Kind(
            "Lighting",
            ("Desk Lamp", "Floor Lamp", "Pendant Light", "Reading Lamp", "Night Light"),
            ("Mini", "Small", "Medium", "Large"),
            (22, 189),
            (300, 6200),
            ("brushed brass", "powder-coated steel", "opal glass", "oak and linen"),
            (
                "The light can be dimmed in five steps.",
                "The arm turns all the way round.",
                "It remembers the last setting.",
                "The bulb is included and can be replaced.",
                "The cable is two metres long.",
            ),
            ("The light is warm and even.", "It took ten minutes to put up.", "The dimmer works smoothly.", "It looks dearer than it was."),
            (
                "The cable is too short.",
                "The switch is hard to find in the dark.",
                "It hums on the lowest step.",
                "The shade arrived dented.",
            ),
        ),
        Kind(
            "Bedding",
            ("Duvet Cover", "Wool Blanket", "Pillow", "Fitted Sheet", "Quilt"),
            ("Single", "Double", "Queen", "King"),
            (28, 220),
            (400, 3400),
            ("washed linen", "organic cotton", "merino wool", "bamboo viscose"),
            (
                "It can be washed at 60 degrees.",
                "It gets softer with every wash.",
                "The seams are sewn twice.",
                "Buttons keep it closed.",
                "It is woven in one piece.",
            ),
            (
                "It is soft from the first night.",
                "It keeps warm without being heavy.",
                "The colour stayed after ten washes.",
                "It dries quickly.",
            ),
            ("It shrank in the wash.", "The colour is paler than in the picture.", "It creases a lot.", "It smelled odd at first."),
        ),
        Kind(
            "Storage",
            ("Laundry Basket", "Shelf Box", "Shoe Rack", "Blanket Chest", "Wall Shelf"),
            ("20 L", "35 L", "50 L", "80 L"),
            (19, 175),
            (500, 9500),
            ("seagrass", "pine", "felt", "bent plywood", "powder-coated steel"),
            (
                "It folds flat when it is not needed.",
                "It is put together without tools.",
                "Two of them stack.",
                "The feet do not mark the floor.",
                "The handles are sewn through.",
            ),
            ("It holds more than I thought.", "It was put together in minutes.", "It is sturdy.", "It fits exactly under the stairs."),
            ("A screw was missing.", "It wobbles on carpet.", "It smells of glue.", "The lid does not close flush."),
        ),
    ),
)

OUTDOORS = Department(
    "Outdoors",
    "Things that have been rained on.",
    ("Halden", "Norvik", "Pikewood", "Kestrel", "Skarn"),
    ("Arete", "Boulder", "Cairn", "Drift", "Edge", "Fell", "Glacier", "Highline", "Ledge", "Moraine", "Ridge", "Summit", "Tarn"),
    (
        Kind(
            "Tents",
            ("Trekking Tent", "Family Tent", "Bivvy", "Dome Tent", "Tarp Shelter"),
            ("1 Person", "2 Person", "3 Person", "4 Person"),
            (95, 520),
            (850, 6900),
            ("ripstop nylon", "recycled polyester", "cotton canvas"),
            (
                "It stands in under five minutes.",
                "The inner tent can be hung on its own.",
                "The seams are taped.",
                "Two vents keep the inside dry.",
                "The poles are colour-coded.",
            ),
            ("It went up in five minutes.", "It stayed dry in a storm.", "There is room for the packs.", "It is light for its size."),
            ("The zip catches.", "There is a lot of condensation.", "The pegs bend easily.", "It is tight for tall people."),
        ),
        Kind(
            "Sleeping Bags",
            ("Down Sleeping Bag", "Summer Sleeping Bag", "Sleeping Mat", "Camping Quilt", "Bag Liner"),
            ("Short", "Regular", "Long", "Wide"),
            (32, 340),
            (220, 1900),
            ("goose down", "hollow-fibre polyester", "merino wool", "brushed cotton"),
            (
                "It packs down to the size of a loaf.",
                "The zip runs on both sides.",
                "The hood can be drawn tight.",
                "A pocket inside takes a phone.",
                "It is warm down to two degrees.",
            ),
            ("It is warm below zero.", "It packs very small.", "The zip never catches.", "I slept through the night."),
            ("It is narrow at the feet.", "It sheds feathers.", "The sack is too small for it.", "It takes long to dry."),
        ),
        Kind(
            "Backpacks",
            ("Daypack", "Hiking Backpack", "Commuter Backpack", "Travel Pack", "Running Vest"),
            ("12 L", "22 L", "35 L", "55 L"),
            (35, 260),
            (260, 2300),
            ("ripstop nylon", "waxed cotton", "recycled polyester", "tarpaulin"),
            (
                "The back panel lets air through.",
                "A rain cover is tucked into the base.",
                "The hip belt has two pockets.",
                "It opens like a suitcase.",
                "A sleeve holds a laptop of 15 inches.",
            ),
            (
                "It carries well even when full.",
                "The pockets are where I want them.",
                "It kept my things dry.",
                "The straps are comfortable.",
            ),
            (
                "The straps are thin.",
                "The side pockets are too tight for a bottle.",
                "The zip broke after a month.",
                "It has no rain cover.",
            ),
        ),
    ),
)

SPORTS = Department(
    "Sports",
    "For the morning before work.",
    ("Verran", "Kestrel", "Pacer", "Stride and Co", "Tolva"),
    ("Apex", "Bolt", "Cadence", "Dash", "Echo", "Flux", "Glide", "Interval", "Lap", "Motion", "Pulse", "Rally", "Tempo"),
    (
        Kind(
            "Cycling",
            ("Bike Helmet", "Rear Light", "Floor Pump", "Pannier", "Cycling Gloves"),
            ("S", "M", "L", "XL"),
            (15, 160),
            (60, 1700),
            ("moulded foam", "aluminium", "recycled polyester", "polycarbonate"),
            (
                "It is approved for road use.",
                "It can be seen from 400 metres.",
                "It fits all common valves.",
                "It is fastened with one hand.",
                "It charges in two hours.",
            ),
            ("It fits well.", "It is bright enough for country lanes.", "It is easy to take off.", "It survived a winter of commuting."),
            ("The strap is too short.", "The battery lasts two rides only.", "It rattles on cobbles.", "It runs small."),
        ),
        Kind(
            "Fitness",
            ("Yoga Mat", "Dumbbell Set", "Resistance Bands", "Kettlebell", "Foam Roller"),
            ("Light", "Medium", "Firm", "Pro"),
            (14, 185),
            (250, 16000),
            ("natural rubber", "cast iron", "cork", "latex", "closed-cell foam"),
            (
                "It does not slip on wood or tile.",
                "It wipes clean.",
                "A strap for carrying is included.",
                "The grip is wide enough for both hands.",
                "A chart with 20 exercises is included.",
            ),
            ("The grip is good.", "It does not slip.", "It lies flat at once.", "It is quiet on the floor."),
            ("It smells of rubber.", "The edges curl.", "It wore through in a season.", "The weight is not marked clearly."),
        ),
        Kind(
            "Running",
            ("Running Belt", "Head Torch", "Running Cap", "Sports Bottle", "Stopwatch"),
            ("One", "Lite", "Plus", "Max"),
            (12, 95),
            (40, 420),
            ("stretch polyester", "polycarbonate", "soft plastic", "brushed nylon"),
            (
                "It does not bounce.",
                "It holds a phone and keys.",
                "It is easy to use with gloves on.",
                "Reflective strips run along both sides.",
                "It floats.",
            ),
            ("It does not bounce.", "I forget that I am wearing it.", "It is easy to read.", "It is bright on dark paths."),
            ("The clasp opens by itself.", "It leaks when it is upside down.", "The buttons are small.", "It is warm in summer."),
        ),
    ),
)

ELECTRONICS = Department(
    "Electronics",
    "Few buttons, long cables.",
    ("Quillon", "Tessel", "Ampere North", "Sonder", "Voltis"),
    ("Atlas", "Beacon", "Chord", "Delta", "Forte", "Halo", "Ion", "Nova", "Orbit", "Prism", "Relay", "Signal", "Vector"),
    (
        Kind(
            "Headphones",
            ("Wireless Headphones", "In-Ear Headphones", "Studio Headphones", "Sports Earbuds", "Headset"),
            ("100", "200", "300", "500"),
            (29, 320),
            (20, 340),
            ("aluminium", "soft-touch plastic", "vegan leather", "silicone"),
            (
                "The battery lasts 30 hours.",
                "It can be worn in the rain.",
                "Noise is cancelled in three steps.",
                "It connects to two devices at once.",
                "The cable can be replaced.",
            ),
            ("The sound is clear.", "They are comfortable for hours.", "The battery lasts for days.", "Calls are easy to understand."),
            ("The ear cups are small.", "The left side went silent.", "The app crashes.", "They press after an hour."),
        ),
        Kind(
            "Speakers",
            ("Bluetooth Speaker", "Bookshelf Speaker", "Shower Speaker", "Soundbar", "Kitchen Radio"),
            ("S1", "S2", "S3", "S5"),
            (25, 380),
            (280, 5400),
            ("woven fabric", "walnut veneer", "aluminium", "soft-touch plastic"),
            (
                "Two of them make a stereo pair.",
                "It plays for 12 hours.",
                "It can lie in water for half an hour.",
                "The knob on top sets the volume.",
                "It has an input for a record player.",
            ),
            ("It fills the room.", "It is loud for its size.", "It was set up in a minute.", "The bass is full."),
            ("It loses the connection.", "The bass is thin.", "It is slow to wake.", "The cable is proprietary."),
        ),
        Kind(
            "Keyboards and Mice",
            ("Mechanical Keyboard", "Wireless Mouse", "Compact Keyboard", "Trackball", "Number Pad"),
            ("K1", "K2", "K4", "K8"),
            (19, 190),
            (90, 1150),
            ("aluminium", "recycled plastic", "walnut and steel"),
            (
                "The switches can be changed without soldering.",
                "It pairs with three computers.",
                "It runs a year on one battery.",
                "The keys are lit from below.",
                "It works on glass.",
            ),
            ("The keys feel good.", "It is quiet enough for the office.", "It fits my hand.", "Switching between computers is quick."),
            ("The keys are loud.", "It wakes up slowly.", "The cable is stiff.", "The feet came off."),
        ),
    ),
)

OFFICE = Department(
    "Office",
    "Paper has not gone away.",
    ("Inkwell", "Pellworm", "Foliant", "Graphis", "Brightwell"),
    ("Archive", "Banner", "Clerk", "Draft", "Envoy", "Folio", "Ledger", "Margin", "Note", "Press", "Quire", "Script", "Tally"),
    (
        Kind(
            "Notebooks",
            ("Lined Notebook", "Dot Grid Notebook", "Sketchbook", "Weekly Planner", "Pocket Notebook"),
            ("A6", "A5", "B5", "A4"),
            (6, 48),
            (90, 780),
            ("recycled paper", "cotton paper", "linen cover", "leather cover"),
            (
                "It lies flat when open.",
                "The pages are numbered.",
                "It has a pocket at the back.",
                "Ink does not bleed through.",
                "An elastic band keeps it closed.",
            ),
            ("The paper takes fountain pen ink.", "It lies flat.", "The binding holds.", "The size is right for a coat pocket."),
            ("Ink bleeds through.", "The corners bend.", "The pages come loose.", "The lines are too dark."),
        ),
        Kind(
            "Pens",
            ("Fountain Pen", "Rollerball", "Mechanical Pencil", "Brush Pen Set", "Ballpoint Pen"),
            ("Extra Fine", "Fine", "Medium", "Broad"),
            (5, 98),
            (10, 140),
            ("brass", "resin", "aluminium", "stainless steel"),
            (
                "It takes standard cartridges.",
                "The clip holds on thick cloth.",
                "The cap closes with a click.",
                "It is balanced with the cap on.",
                "A spare nib is included.",
            ),
            ("It writes at the first stroke.", "It feels good in the hand.", "The ink flows evenly.", "It never skips."),
            ("It skips.", "The ink dries slowly.", "The clip is loose.", "It is thin for large hands."),
        ),
        Kind(
            "Desk Organisers",
            ("Letter Tray", "Pen Pot", "Monitor Stand", "Drawer Organiser", "Magazine File"),
            ("Single", "Double", "Triple", "Wide"),
            (9, 92),
            (150, 3800),
            ("bent plywood", "cork", "powder-coated steel", "recycled felt"),
            (
                "Cables leave through the back.",
                "Rubber feet protect the desk.",
                "It can stand or lie.",
                "The parts can be moved around.",
                "It carries 15 kilograms.",
            ),
            ("My desk is tidy at last.", "It is well finished.", "It is the right height.", "It carries a heavy screen."),
            ("It scratches easily.", "It is lower than described.", "The glue gave way.", "One part was missing."),
        ),
    ),
)

GARDEN = Department(
    "Garden",
    "Soil under the nails.",
    ("Greenhow", "Thistle and Rake", "Pikewood", "Fernleigh", "Oakum"),
    ("Acre", "Bramble", "Clover", "Dell", "Fernery", "Hedgerow", "Kitchen Garden", "Loam", "Marigold", "Plot", "Rowan", "Sorrel", "Yarrow"),
    (
        Kind(
            "Hand Tools",
            ("Trowel", "Pruning Shears", "Hand Rake", "Weeding Knife", "Garden Gloves"),
            ("Small", "Medium", "Large", "Long"),
            (9, 78),
            (90, 900),
            ("forged steel", "ash wood and steel", "stainless steel", "goatskin"),
            (
                "The blade can be replaced.",
                "The handle is oiled ash.",
                "A loop keeps it closed.",
                "It cuts branches of two centimetres.",
                "It does not rust.",
            ),
            ("It cuts cleanly.", "It feels as if it would last for ever.", "It is light.", "It gets weeds out with the root."),
            ("The spring came out.", "The handle is rough.", "It rusts.", "It is stiff at first."),
        ),
        Kind(
            "Pots and Planters",
            ("Planter", "Hanging Pot", "Window Box", "Plant Stand", "Seed Tray"),
            ("12 cm", "20 cm", "30 cm", "45 cm"),
            (8, 130),
            (200, 9800),
            ("terracotta", "glazed stoneware", "recycled plastic", "galvanised steel"),
            (
                "It has a hole for drainage.",
                "It stands frost.",
                "A saucer is included.",
                "It has a hidden tank for water.",
                "It can be hung or stood.",
            ),
            ("It survived the frost.", "It looks good on the balcony.", "The plants do well in it.", "It is heavy enough not to tip over."),
            ("It has no hole.", "It arrived with a chip.", "It is thinner than expected.", "It stains the floor."),
        ),
        Kind(
            "Watering",
            ("Watering Can", "Garden Hose", "Sprinkler", "Water Butt", "Spray Nozzle"),
            ("2 L", "5 L", "10 L", "15 m"),
            (11, 165),
            (180, 7400),
            ("galvanised steel", "recycled plastic", "brass", "copper"),
            (
                "The rose can be taken off.",
                "It does not kink.",
                "It fits all common couplings.",
                "The spout reaches over tall plants.",
                "It is easy to carry when full.",
            ),
            ("It pours gently.", "It has never leaked.", "It is easy to carry when full.", "The jet is even."),
            ("It leaks at the joint.", "It kinks.", "The handle cuts into the hand.", "The jet is weak."),
        ),
    ),
)

TOYS = Department(
    "Toys and Games",
    "For rainy Sundays.",
    ("Merrybrook", "Puzzlewick", "Tinker Barn", "Hopscotch House", "Foliant"),
    (
        "Adventure",
        "Beacon Bay",
        "Castle Hill",
        "Dragonfly",
        "Explorer",
        "Foxglove",
        "Galaxy",
        "Harbour",
        "Island",
        "Jungle",
        "Lantern",
        "Meadowland",
        "Owl Forest",
    ),
    (
        Kind(
            "Board Games",
            ("Board Game", "Card Game", "Dice Game", "Memory Game", "Strategy Game"),
            ("Mini", "Classic", "Family", "Deluxe"),
            (9, 84),
            (180, 2400),
            ("recycled cardboard", "beech wood", "linen-finish card"),
            (
                "A round takes half an hour.",
                "It is for two to six players.",
                "The rules fit on one page.",
                "It can be played alone.",
                "No two rounds are the same.",
            ),
            (
                "The rules are quickly learnt.",
                "The children ask for it every evening.",
                "The pieces are well made.",
                "It works with two players.",
            ),
            ("A round takes too long.", "A card was missing.", "The box is far too big.", "The rules leave questions open."),
        ),
        Kind(
            "Puzzles",
            ("Jigsaw Puzzle", "Wooden Puzzle", "3D Puzzle", "Puzzle Cube", "Floor Puzzle"),
            ("100 Pieces", "300 Pieces", "500 Pieces", "1000 Pieces"),
            (8, 62),
            (150, 1700),
            ("recycled cardboard", "birch plywood", "beech wood"),
            (
                "The pieces fit tightly.",
                "A poster of the picture is included.",
                "It comes in a cotton bag.",
                "Every piece has its own shape.",
                "The picture was drawn for this puzzle.",
            ),
            ("The pieces fit well.", "The picture is lovely.", "It kept us busy for a weekend.", "There is no dust in the box."),
            ("A piece was missing.", "The pieces are thin.", "It was too easy.", "The colours are dull."),
        ),
        Kind(
            "Building Sets",
            ("Marble Run", "Block Set", "Train Set", "Robot Kit", "Model Boat"),
            ("40 Parts", "80 Parts", "120 Parts", "200 Parts"),
            (18, 140),
            (350, 3900),
            ("beech wood", "birch plywood", "recycled plastic"),
            (
                "It can be combined with other sets.",
                "The paint is safe for small children.",
                "No batteries are needed.",
                "A book with 12 models is included.",
                "All parts fit back into the box.",
            ),
            ("It is played with every day.", "The parts fit together well.", "It can be built in many ways.", "Even adults like it."),
            ("The instructions are confusing.", "A wheel broke.", "It needs more space than expected.", "Some parts were missing."),
        ),
    ),
)

DEPARTMENTS = (KITCHEN, HOME, OUTDOORS, SPORTS, ELECTRONICS, OFFICE, GARDEN, TOYS)
PER_KIND = 13
